"""How programs end: after an error soon after their exit handlers, and otherwise as without the agent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STARTUP = Path(__file__).parents[4] / "operator" / "pytorchjob_agent" / "workers" / "startup"
PROGRAM = """
import atexit, os, sys

class Module:
    def __del__(self):
        os.write(2, b"freed")

module = Module()
"""
FORK = """
if not os.fork():
    raise ValueError("in the child")
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]) + 40)
"""
CALLBACK = """
def callback():  # an error in it is printed by C code, which sets these too
    try:
        1 / 0
    except ZeroDivisionError as error:
        sys.last_value, sys.last_traceback = error, error.__traceback__
callback()
"""


def end(folder: Path, code: str, *arguments: str) -> tuple[int, str, str]:
    """The exit code of a worker that runs this code, and its two outputs."""
    script = folder / "train.py"
    script.write_text(PROGRAM + code)
    env = {**os.environ, "PYTHONPATH": f"{STARTUP}{os.pathsep}{folder}"}
    command = [sys.executable, *(arguments or [str(script)])]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        pytest.param("raise ValueError('x')", 1, id="an error"),
        pytest.param("def train():\n    1 / 0\ntrain()", 1, id="an error in a function"),
        pytest.param("import threading\nthreading.Timer(0.2, print).start()\n1 / 0", 1, id="a thread goes on"),
        pytest.param("exec(compile('1 / 0', 'other.py', 'exec'))", 1, id="a launcher that runs other code"),
    ],
)
def test_a_program_that_an_error_has_left_frees_nothing(tmp_path: Path, code: str, exit_code: int) -> None:
    found, _, err = end(tmp_path, code)
    assert (found, "freed" in err) == (exit_code, False)
    assert "Traceback (most recent call last)" in err


def test_so_does_a_module(tmp_path: Path) -> None:
    found, _, err = end(tmp_path, "1 / 0", "-m", "train")
    assert (found, "freed" in err) == (1, False)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        pytest.param("", 0, id="success"),
        pytest.param("sys.exit(3)", 3, id="an exit code"),
        pytest.param("raise SystemExit('words')", 1, id="words"),
        pytest.param("raise KeyboardInterrupt", -2, id="an interrupt"),
        pytest.param("import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()", 0, id="in a thread"),
        pytest.param("import code\ncode.InteractiveConsole(globals()).push('1 / 0')", 0, id="in a console"),
        pytest.param(CALLBACK, 0, id="in a callback"),
        pytest.param(FORK, 41, id="in a child"),
        pytest.param("atexit.register(lambda: 1 / 0)", 0, id="in an exit handler"),
    ],
)
def test_every_other_program_ends_as_ever(tmp_path: Path, code: str, exit_code: int) -> None:
    found, _, err = end(tmp_path, code)
    assert (found, "freed" in err) == (exit_code, True)


def test_exit_handlers_run_and_buffers_are_written(tmp_path: Path) -> None:
    code = f"""
import ctypes, logging, logging.handlers
target = logging.FileHandler({str(tmp_path / "log")!r})
logging.getLogger().addHandler(logging.handlers.MemoryHandler(100, target=target))
logging.warning("logged")
file = open({str(tmp_path / "file")!r}, "w")
file.write("written")
raw = open({str(tmp_path / "raw")!r}, "wb")
raw.write(b"bytes")
atexit.register(lambda: file.write(" by a handler"))
ctypes.CDLL(None).printf(b"by C\\n")
print("printed")
1 / 0
"""
    found, out, err = end(tmp_path, code)
    assert (found, "freed" in err) == (1, False)
    assert (tmp_path / "log").read_text() == "logged\n"
    assert (tmp_path / "file").read_text() == "written by a handler"
    assert (tmp_path / "raw").read_bytes() == b"bytes"
    assert {*out.splitlines()} == {"printed", "by C"}
