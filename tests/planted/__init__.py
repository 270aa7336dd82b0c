"""Defects as a reader or an attacker saw them, planted one by one: the tests named beside each have to notice it.

`python -m tests.planted` plants them in a copy of the repository; a word chooses those with this word in their name.
An area has a file here. `make test-long` plants all of them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.defects import ROOT, Defect, plant

_SECONDS, _LONGEST = 180, 420.0
"""After this time a test, and all tests of a defect, that it hangs have noticed it."""


@dataclass(frozen=True)
class Planted(Defect):
    """A change of one place in the source, and the tests that concern it."""

    tests: Sequence[str]
    """Files or tests, as pytest takes them."""


@dataclass(frozen=True)
class Verdict:
    """What the tests made of a source."""

    noticed: bool
    by: str
    """What failed first; without a failure, how many passed."""


def judge(defects: Sequence[Planted], tests: Iterable[str]) -> Verdict:
    """Run tests in a copy of the repository that has these defects. Processes that tests start see them too."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "copy"
        copy.mkdir()
        plant(defects, copy / "operator")
        shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for path in ROOT.iterdir():
            if path.is_dir() and not path.name.startswith(".") and not (copy / path.name).exists():
                (copy / path.name).symlink_to(path)
        options = ("-q", "-x", "-p", "no:cacheprovider", "-o", f"timeout={_SECONDS}")
        command = (sys.executable, "-B", "-m", "pytest", *options, *tests)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy / "operator"), str(copy)])}
        try:
            done = subprocess.run(
                command, cwd=copy, env=env, capture_output=True, text=True, check=False, timeout=_LONGEST
            )
        except subprocess.TimeoutExpired:
            return Verdict(True, f"the tests do not end within {_LONGEST:.0f} s")
    lines = done.stdout.splitlines()
    failed = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), "")
    assert done.returncode == 0 or (done.returncode == 1 and failed), done.stdout + done.stderr
    return Verdict(bool(failed), failed or lines[-1])
