"""A package that is installed without an extra: each command says what to install instead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[2] / "operator"


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from pytorchjob.cli import main; main()", "pytorchjob[cli]"),
        ("from pytorchjob.cli import kubectl_main; kubectl_main()", "pytorchjob[cli]"),
        ("from pytorchjob.cli import kubectl_complete; kubectl_complete()", "pytorchjob[cli]"),
        ("from pytorchjob_operator.__main__ import main; main()", "pytorchjob[operator]"),
    ],
)
def test_a_command_without_its_packages_names_the_extra(code: str, extra: str) -> None:
    command = [sys.executable, "-S", "-c", code]  # -S: without installed packages
    env = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert extra in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("package", ["pytorchjob", "pytorchjob_agent", "pytorchjob_operator"])
def test_a_package_has_its_types(package: str) -> None:
    assert (PACKAGES / package / "py.typed").exists()
