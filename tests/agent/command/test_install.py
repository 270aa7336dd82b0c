"""The package copied to where another Python finds it: whole, once, and again without harm."""

import configparser
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pytorchjob_agent
from pytorchjob_agent.__main__ import main
from pytorchjob_agent.command.install import install

HERE = Path(pytorchjob_agent.__file__).parent
CONTRACT = Path(HERE.name) / "contract" / "environment.py"


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def in_python(directory: Path, code: str) -> str:
    """What a Python prints that has nothing but its own library and the folder."""
    env = {"PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_whole_package_is_there_and_no_compiled_file(tmp_path: Path) -> None:
    assert install(tmp_path / "new" / "folder")
    copied = tmp_path / "new" / "folder" / HERE.name
    sources = {str(path.relative_to(HERE)): path.read_bytes() for path in HERE.rglob("*.py")}
    assert files(copied) == sources


def test_another_python_finds_the_package(tmp_path: Path) -> None:
    install(tmp_path)
    code = (
        "from importlib.metadata import version; import pytorchjob_agent;"
        "print(version('pytorchjob'), pytorchjob_agent.__file__)"
    )
    assert in_python(tmp_path, code) == f"{pytorchjob_agent.__version__} {tmp_path / HERE.name / '__init__.py'}"


def test_lightning_finds_its_callbacks_in_both_packages(tmp_path: Path) -> None:
    install(tmp_path)
    code = (
        "from importlib.metadata import entry_points;"
        "groups = ('lightning.pytorch.callbacks_factory', 'pytorch_lightning.callbacks_factory');"
        "print(*(point.value for group in groups for point in entry_points(group=group)))"
    )
    assert in_python(tmp_path, code) == " ".join(["pytorchjob_agent.script.lightning:callbacks"] * 2)


def test_pip_installs_the_same_entry_points(tmp_path: Path) -> None:
    install(tmp_path)
    (about,) = tmp_path.glob("*.dist-info")
    copied = configparser.ConfigParser()
    copied.read(about / "entry_points.txt")
    project = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text())["project"]
    assert {name: dict(copied[name]) for name in copied.sections()} == project["entry-points"]


def test_twice_is_once(tmp_path: Path) -> None:
    assert install(tmp_path)
    before = files(tmp_path)
    assert not install(tmp_path)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(
            lambda top: (top / CONTRACT).write_text("half"),
            id="a file that was cut off",
        ),
        pytest.param(lambda top: (top / HERE.name / "gone.py").write_text(""), id="a file of an older version"),
        pytest.param(lambda top: (top / CONTRACT).unlink(), id="a file that is missing"),
        pytest.param(lambda top: (top / "pytorchjob-0.0.1.dist-info").mkdir(), id="an older version's entry point"),
    ],
)
def test_what_differs_is_replaced_whole(tmp_path: Path, spoil: object) -> None:
    install(tmp_path)
    right = files(tmp_path)
    spoil(tmp_path)  # type: ignore[operator]
    assert install(tmp_path)
    assert files(tmp_path) == right
    assert len(list(tmp_path.iterdir())) == 2


def test_anybody_may_read_it_whatever_the_writer_hides(tmp_path: Path) -> None:
    code = "import os; os.umask(0o077); from pytorchjob_agent.command.install import install; import pathlib;"
    code += f"install(pathlib.Path({str(tmp_path)!r}))"
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {0o644, 0o755}


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", str(tmp_path)]) == 0
    assert "is now in" in capsys.readouterr().out
    assert main(["install", str(tmp_path)]) == 0
    assert "was already in" in capsys.readouterr().out


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["install", str(tmp_path / "file")]) == 78
    assert str(tmp_path / "file") in capsys.readouterr().err
