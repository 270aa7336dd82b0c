"""The shell block of README.md in this folder that takes minutes, in a clone: the page gets new rows."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.readme import clone
from tests.shell.following import follow, run_by
from tests.shell.register import MUTATED

VENV_OF = ("pyproject.toml", "install/packages.py", "requirements/bootstrap.txt", "requirements/dev.txt")
"""What the environment is made of: make would make it again if these were newer."""


@pytest.mark.long
@pytest.mark.timeout(3700)
def test_the_page_changes_two_modules_and_no_change_survives(tmp_path: Path) -> None:
    [key] = run_by(MUTATED)
    checkout = clone(tmp_path / "clone")
    (checkout / ".venv").symlink_to(sys.prefix)
    for name in VENV_OF:
        os.utime(checkout / name, (0, 0))
    results = checkout / "tests/mutation/results.json"
    results.write_text("{}")
    printed = follow(key, checkout, seconds=3600, PYTHONPATH="")
    scores = re.findall(r"^pytorchjob_operator/(\S+): 100\.0 % of (\d+) ", printed, re.MULTILINE)
    assert [module for module, _ in scores] == ["rounds/budget", "kube/lease", "rounds/budget"], printed
    assert all(int(mutants) > 100 for _, mutants in scores), printed
    assert results.read_text().count('"mutants"') == 2
