"""What runs before a worker's script: it changes nothing that the script could notice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STARTUP = Path(__file__).parents[4] / "operator" / "pytorchjob_agent" / "workers" / "startup"
SHOW = "import sys; print(sys.path, 'user' in sys.modules)"


def python(*arguments: str, **env: str) -> tuple[str, str]:
    """What a worker prints on both streams."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, *arguments], env=own | env, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout, done.stderr


def with_user(folder: Path, code: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return f"{STARTUP}{os.pathsep}{folder}"


def test_the_path_is_as_without_it(tmp_path: Path) -> None:
    assert python("-c", SHOW, PYTHONPATH=f"{STARTUP}{os.pathsep}{tmp_path}") == python(
        "-c", SHOW, PYTHONPATH=str(tmp_path)
    )


def test_the_users_own_has_its_turn(tmp_path: Path) -> None:
    path = with_user(tmp_path / "own", "print('user'); import sys; print(__name__, sys.modules[__name__].__file__)")
    out, err = python("-c", "pass", PYTHONPATH=path)
    assert (out, err) == (f"user\nsitecustomize {tmp_path}/own/sitecustomize.py\n", "")


@pytest.mark.parametrize("code", ["1/0", "import nowhere_to_be_found"])
def test_an_error_of_the_users_own_is_told_as_ever(tmp_path: Path, code: str) -> None:
    ours = with_user(tmp_path / "own", code)
    assert python("-c", "print('runs')", PYTHONPATH=ours) == python(
        "-c", "print('runs')", PYTHONPATH=str(tmp_path / "own")
    )


@pytest.mark.parametrize("stacks", ["", "/nowhere/0.stack", "/"], ids=["no file", "no folder", "a folder"])
def test_without_a_file_there_is_no_handler_and_no_word(stacks: str) -> None:
    code = "print([line for line in open('/proc/self/status') if 'SigCgt' in line])"
    assert python("-c", code, PYTHONPATH=str(STARTUP), PYTORCHJOB_STACKS=stacks) == python("-c", code)


def test_the_file_is_not_passed_on(tmp_path: Path) -> None:
    file = tmp_path / "0.stack"
    file.touch()
    code = "import subprocess; print(subprocess.run(['ls', '/proc/self/fd'], capture_output=True, text=True).stdout)"
    env = {"PYTHONPATH": str(STARTUP), "PYTORCHJOB_STACKS": str(file)}
    assert python("-c", code, **env)[0] == python("-c", code)[0]
