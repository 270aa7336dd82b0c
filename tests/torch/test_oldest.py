"""What the agent does with torch, done again with the oldest torch that it supports, in an environment of its own."""

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch_oldest, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytorchjob-operator"
PYTHON = CACHE / "torch-oldest" / "bin" / "python"
FILES = sorted(
    str(file.relative_to(ROOT))
    for file in (ROOT / "tests" / "torch").glob("test_*.py")
    if re.search(r"pytest\.mark\.torch\b", file.read_text())
)
CASES = [pytest.param(file, "", id=Path(file).stem) for file in FILES]
# Whole jobs rarely find what the tests of torch's interfaces do not.
CASES.append(
    pytest.param(
        "tests/agent/rendezvous/test_members.py", "cold or has_to_go or launcher", id="members", marks=pytest.mark.long
    )
)
_LONGEST = 600
"""Seconds for one file; gloo of that time may hang for ever when a process ends."""


@pytest.fixture(scope="module")
def python() -> Path:
    """Return the interpreter that has the oldest torch."""
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is missing: run `make torch-oldest`, or leave these tests out by WITHOUT=torch_oldest")
    return PYTHON


def run(python: Path, *command: str) -> str:
    """Return what a command of that interpreter prints."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [python, *command], cwd=ROOT, env=outer, capture_output=True, text=True, check=False, timeout=_LONGEST
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_the_oldest_that_is_supported(python: Path) -> None:
    words = run(python, "-c", "import torch; print(torch.__version__)")
    said = (ROOT / "operator/pytorchjob_agent/command/launcher_process.py").read_text()
    assert re.search(r"install torch (\d+\.\d+) or newer", said)[1] == words.rpartition(".")[0]  # type: ignore[index]


@pytest.mark.parametrize(("file", "which"), CASES)
def test_everything_holds_with_the_oldest_torch(python: Path, file: str, which: str) -> None:
    done = run(python, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "torch", "-k", which, file)
    assert " passed" in done
