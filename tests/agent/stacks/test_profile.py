"""Profiles of real workers, by py-spy or by themselves, and that taking them ends none."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytorchjob_agent.__main__ import main
from pytorchjob_agent.stacks.stack_dump import StackDumps
from pytorchjob_agent.workers.startup.pytorchjob_startup import PROFILE_SIGNAL, SIGNAL

Start = Callable[..., int]
SPINS = """
def inner():
    return sum(range(1000))
def train():
    while True: inner()
print("ready", flush=True)
train()
"""
WITH_CHILD = "import os, time\nif os.fork() == 0: time.sleep(600)\n" + SPINS
IN_C = "import re\nprint('ready', flush=True)\nre.match('(a|a)*b', 'a' * 100)"
FORKS_NOT = f"import signal\nsignal.signal({int(PROFILE_SIGNAL)}, signal.SIG_DFL)\n" + SPINS


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a worker of the agent, whose local rank no other test has; returns the local rank."""
    started: list[subprocess.Popen[str]] = []
    rank = os.getpid() % 100_000 * 10

    def run(code: str) -> int:
        local_rank = rank + len(started)
        stacks = StackDumps(tmp_path / "stacks", 1)
        path = tmp_path / "stacks" / f"{local_rank}.stack"
        path.touch()
        env = {**os.environ, **stacks.env(0, os.environ), "PYTORCHJOB_STACKS": str(path)}
        script = tmp_path / "train.py"
        script.write_text(code)
        process = subprocess.Popen(
            [sys.executable, str(script)], env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return local_rank

    yield run
    for process in started:
        assert process.poll() is None, "the worker has ended"
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def profile(local_rank: int, seconds: float = 0.5) -> int:
    return main(["profile", "--local-rank", str(local_rank), "--seconds", str(seconds)])


@pytest.mark.parametrize("code", [SPINS, WITH_CHILD], ids=["alone", "with a child that inherited its handler"])
def test_a_worker_samples_itself_twice(start: Start, capfd: pytest.CaptureFixture[str], code: str) -> None:
    rank = start(code)
    for _ in range(2):
        assert profile(rank) == 0
        lines = capfd.readouterr().out.splitlines()
        assert all(line.rpartition(" ")[2].isdecimal() for line in lines)
        (line, *_) = (line for line in lines if "inner (" in line)
        assert line.startswith("MainThread;<module> (")
        assert line.index(";train (") < line.index(";inner (")


def py_spy(folder: Path, program: str) -> str:
    path = folder / "bin" / "py-spy"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    return f"{path.parent}:{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        pytest.param('while [ $# -gt 1 ]; do shift; done; echo "by py-spy 1" > "$1"', "by py-spy 1", id="it works"),
        pytest.param("echo Permission denied >&2; exit 1", "MainThread;", id="it may not trace: the worker samples"),
        pytest.param("exit 0", "MainThread;", id="it writes nothing: the worker samples"),
    ],
)
def test_py_spy_comes_first(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    program: str,
    words: str,
) -> None:
    monkeypatch.setenv("PATH", py_spy(tmp_path, program))
    assert profile(start(SPINS)) == 0
    assert words in capfd.readouterr().out


def test_a_worker_that_is_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    assert profile(999_999_999) == 78
    assert capfd.readouterr().out == ""


def test_a_script_that_took_the_signal_away_is_left_alone(start: Start) -> None:
    assert profile(start(FORKS_NOT)) == 78


def test_a_worker_outside_of_python_gives_no_profile_and_goes_on(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytorchjob_agent.stacks.profile._BEGINS_WITHIN", 0.5)
    assert profile(start(IN_C)) == 1


def test_the_signals_differ() -> None:
    assert signal.SIGRTMIN < SIGNAL < PROFILE_SIGNAL < signal.SIGRTMAX
