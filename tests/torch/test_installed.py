"""The first block of docs/cli.md: the command, installed by pip beside torch, in a clone of this repository."""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.readme import clone
from tests.shell.following import follow, run_by
from tests.shell.register import INSTALLED

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(900)]


def needed(*names: str) -> set[str]:
    """These packages and all that they need, as this Python has them: without a GPU it does without some of torch's."""
    found: set[str] = set()
    rest = [*names]
    while rest:
        name = rest.pop()
        if name in found:
            continue
        try:
            wanted = map(Requirement, distribution(name).requires or [])
        except PackageNotFoundError:
            continue
        found.add(name)
        rest += [each.name for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def share(to: Path, *names: str) -> None:
    """Link the packages of this Python, and no others, into a folder."""
    to.mkdir()
    for name in needed(*names):
        package = distribution(name)
        for top in {path.parts[0] for path in package.files or [] if path.parts[0] not in ("..", "__pycache__")}:
            if not (to / top).exists():
                (to / top).symlink_to(str(package.locate_file(top)))


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment that has torch and scikit-learn, and nothing of ours."""
    made = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(made)], check=True)
    share(tmp_path / "shared", "torch", "scikit-learn")
    [packages] = made.glob("lib/python*/site-packages")
    # Outside of the environment: pip reads it, and changes nothing there.
    (packages / "shared.pth").write_text(f"{tmp_path / 'shared'}\n")
    return made


def test_pip_installs_the_command_and_it_trains(environment: Path, tmp_path: Path) -> None:
    [key] = run_by(INSTALLED)
    assert not (environment / "bin/pytorchjob").exists()
    checkout = clone(tmp_path / "clone")
    printed = follow(key, checkout, [environment / "bin"], seconds=800, PYTHONPATH="", VIRTUAL_ENV=str(environment))
    assert (environment / "bin/pytorchjob").is_file()
    assert "pytorchjob.yaml written" in printed
    assert re.search(r"accuracy=0\.9\d", printed), printed
