"""What is read of a command line, and how it travels."""

import os
import sys

import pytest

from pytorchjob_agent.workers.forked_program import Program

PYTHON = "/usr/bin/python"


@pytest.mark.parametrize(
    ("rest", "target", "module", "args"),
    [
        pytest.param(["-u", "train.py"], "train.py", False, (), id="a script"),
        pytest.param(["-u", "/a/train.py", "-m", "x"], "/a/train.py", False, ("-m", "x"), id="its arguments"),
        pytest.param(["-u", "-m", "pkg.train", "--lr", "1"], "pkg.train", True, ("--lr", "1"), id="a module"),
    ],
)
def test_programs(rest: list[str], target: str, module: bool, args: tuple[str, ...]) -> None:
    program = Program.of([PYTHON, *rest], {}, "/")
    assert program is not None
    assert (program.target, program.module, program.args) == (target, module, args)


@pytest.mark.parametrize("rest", [[], ["train.py"], ["-u"], ["-u", "-m"], ["-u", "-c", "pass"], ["-u", "-"]])
def test_anything_else_is_no_program(rest: list[str]) -> None:
    assert Program.of([PYTHON, *rest], {}, "/") is None


def test_it_travels_with_any_bytes() -> None:
    program = Program.of([PYTHON, "-u", "train.py", "ö"], {"A": os.fsdecode(b"\xff\n")}, "/ö")
    assert program is not None
    assert program.to_json().isascii()
    assert Program.from_json(program.to_json()) == program


@pytest.mark.parametrize(
    ("born", "env", "reason"),
    [
        pytest.param({"A": "1"}, {"B": "2"}, None, id="any variable may change"),
        pytest.param({"PYTHONPATH": "/a"}, {"PYTHONPATH": "/a"}, None, id="the same"),
        pytest.param({"PYTHONPATH": "/a"}, {}, "PYTHONPATH changed since torch was imported", id="one is gone"),
        pytest.param({}, {"MKL_X": "1", "LD_PRELOAD": "x"}, "LD_PRELOAD, MKL_X changed", id="two are new"),
        pytest.param({"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}, None, id="threads can be set later"),
    ],
)
def test_variables_that_are_read_at_the_begin(born: dict[str, str], env: dict[str, str], reason: str | None) -> None:
    found = Program((PYTHON, "-u", "t.py"), "t.py", False, env, "/").differs(born)
    assert (found is None) == (reason is None)
    assert (reason or "") in (found or "")


def test_modules_of_a_bare_interpreter_hide_nothing() -> None:
    folder = os.path.dirname(os.__file__)  # where json lies beside the program
    program = Program((PYTHON, "-u", "t.py"), "t.py", False, {}, folder)
    assert program.hides({*sys.modules}) is None
    assert program.hides(set()) is None  # it is the very module that the program would import
