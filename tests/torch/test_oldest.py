"""What the agent does with torch, done again with the oldest torch that it supports, in an environment of its own."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lanes.events import OPTION
from tests.lanes.results import Results

pytestmark = [pytest.mark.torch_oldest, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytorchjob-operator"
PYTHON = CACHE / "torch-oldest" / "bin" / "python"


def has_interfaces(file: Path) -> bool:
    """Whether this file tests torch's interfaces. Long tests run whole commands, with packages of this project."""
    marks = re.findall(r"pytest\.mark\.(\w+)", file.read_text())
    return "torch" in marks and "long" not in marks


FILES = sorted(
    str(file.relative_to(ROOT)) for file in (ROOT / "tests" / "torch").glob("test_*.py") if has_interfaces(file)
)
MEMBERS = "tests/agent/rendezvous/test_members.py"
_LONGEST = 600
"""Seconds for one run; gloo of that time may hang for ever when a process ends."""


@pytest.fixture(scope="module")
def python() -> Path:
    """Return the interpreter that has the oldest torch."""
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is missing: run `make torch-oldest`, or leave these tests out by WITHOUT=torch_oldest")
    return PYTHON


def run(python: Path, *command: str, expected: tuple[int, ...] = (0,)) -> str:
    """Return what a command of that interpreter prints."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [python, *command], cwd=ROOT, env=outer, capture_output=True, text=True, check=False, timeout=_LONGEST
    )
    assert done.returncode in expected, done.stdout + done.stderr
    return done.stdout


def test_it_is_the_oldest_that_is_supported(python: Path) -> None:
    words = run(python, "-c", "import torch; print(torch.__version__)")
    said = (ROOT / "operator/pytorchjob_agent/command/launcher_process.py").read_text()
    assert re.search(r"install torch (\d+\.\d+) or newer", said)[1] == words.rpartition(".")[0]  # type: ignore[index]


@dataclass(frozen=True)
class Run:
    """One pytest run of that interpreter."""

    results: Results
    text: str

    def outcomes(self, file: str) -> set[str]:
        """Return the outcomes of the file's tests."""
        return {outcome for name, outcome in self.results.outcomes.items() if name.startswith(f"{file}::")}


@pytest.fixture(scope="module")
def interfaces(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return one run of all files: to import torch takes longer than most of them."""
    return pytest_run(python, tmp_path_factory.mktemp("run"), *FILES)


def pytest_run(python: Path, folder: Path, *arguments: str) -> Run:
    """Run tests with that interpreter."""
    events = folder / "events"
    options = ("-p", "no:cacheprovider", "-q", "-m", "torch", "-p", "tests.lanes.events", f"{OPTION}={events}")
    done = run(python, "-m", "pytest", *options, *arguments, expected=(0, 1))
    results = Results()
    results.add(events.read_text().splitlines())
    return Run(results, done)


@pytest.mark.parametrize("file", FILES, ids=[Path(file).stem for file in FILES])
def test_everything_holds_with_the_oldest_torch(interfaces: Run, file: str) -> None:
    assert "passed" in interfaces.outcomes(file), interfaces.text
    assert "failed" not in interfaces.outcomes(file), interfaces.text


@pytest.mark.long
def test_members_recover_with_the_oldest_torch(python: Path, tmp_path: Path) -> None:
    """Whole jobs rarely find what the tests of torch's interfaces do not."""
    done = pytest_run(python, tmp_path, "-k", "cold or has_to_go or launcher", MEMBERS)
    assert done.outcomes(MEMBERS) == {"passed"}, done.text
