"""Stacks of real processes, and that asking for them ends none."""

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytorchjob_agent.stacks.stack_analysis import describe_ranks, place
from pytorchjob_agent.stacks.stack_dump import StackDumps, source_around
from pytorchjob_agent.system import processes
from pytorchjob_agent.workers.output import WorkerStream
from pytorchjob_agent.workers.startup.pytorchjob_startup import STACKS
from tests.waiting import until

SLEEP = """
import sys, time
def load():
    print("ready", flush=True); time.sleep(600)
load()
"""
Start = Callable[..., int]


@pytest.fixture
def stacks(tmp_path: Path) -> StackDumps:
    return StackDumps(tmp_path / "stacks", 2)


@pytest.fixture
def start(stacks: StackDumps) -> Iterator[Start]:
    """Start a worker that prints a line when it is ready; returns its pid."""
    started: list[subprocess.Popen[str]] = []

    def run(*command: str, local_rank: int = 0, **env: str) -> int:
        own = {**os.environ, **env}
        own |= stacks.env(local_rank, own)
        process = subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process.pid

    yield run
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def script(tmp_path: Path, code: str = SLEEP) -> str:
    path = tmp_path / "train.py"
    path.write_text(code)
    return str(path)


def runs(pid: int) -> bool:
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_script_says_where_it_is_and_goes_on(tmp_path: Path, stacks: StackDumps, start: Start) -> None:
    pid = start(sys.executable, script(tmp_path))
    for _ in range(2):
        texts = stacks.collect({0: pid}, {}, 30)
        found = place(texts[0])
        assert found is not None
        assert found.where == "train.py:4 load()"
        assert texts[0].count("load") == 1
    assert runs(pid)


FORKS = f"import os\nif os.fork() == 0:\n    exec({SLEEP!r})\nos.wait()"
THREAD = f"import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n{SLEEP}"
DEEP = "import time\ndef f(n):\n    if n: f(n - 1)\n    print('ready', flush=True); time.sleep(600)\nf(300)"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["-c", SLEEP], id="a command"),
        pytest.param(["-m", "train"], id="a module"),
        pytest.param(["-c", FORKS], id="a fork"),
        pytest.param(["-c", THREAD], id="with another thread"),
        pytest.param(["-c", DEEP], id="deep in a recursion"),
    ],
)
def test_the_end_of_the_stacks_is_known(tmp_path: Path, stacks: StackDumps, start: Start, command: list[str]) -> None:
    script(tmp_path)
    pid = start(sys.executable, *command, PYTHONPATH=str(tmp_path))
    stacks.ask({0: (processes.descendants(pid) or [pid])[0]})
    text = until(lambda: stacks.read_worker(0))
    newest = text.rindex("first):\n") + len("first):\n")
    part = text[: text.index("\n", newest) + 1]
    Path(stacks.env(0, {})[STACKS]).write_text(part)
    assert (stacks.read_worker(0), stacks.read()) == ("", {0: part})


def test_the_stacks_of_an_earlier_request_do_not_count(tmp_path: Path, stacks: StackDumps, start: Start) -> None:
    gone = start(sys.executable, script(tmp_path), local_rank=1)
    assert stacks.collect({1: gone}, {}, 30)
    pid = start(sys.executable, script(tmp_path))
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(0.5, os.kill, (pid, signal.SIGCONT)).start()
    assert stacks.collect({0: pid}, {}, 30).keys() == {0, 1}


def test_it_is_printed_with_the_workers_prefix(tmp_path: Path, stacks: StackDumps, start: Start) -> None:
    out = io.BytesIO()
    pid = start(sys.executable, script(tmp_path))
    stacks.collect({0: pid}, {0: WorkerStream(b"[rank7]: ", out, -1, -1)}, 30)
    lines = out.getvalue().decode().splitlines()
    assert all(line.startswith("[rank7]: ") for line in lines)
    assert any(line.endswith("line 4 in load") for line in lines)


@pytest.mark.parametrize(
    "command", [["sh", "-c", "echo ready; sleep 600 & wait"], ["python"]], ids=["shell", "python -I"]
)
def test_who_has_no_handler_is_left_alone(tmp_path: Path, stacks: StackDumps, start: Start, command: list[str]) -> None:
    isolated = [sys.executable, "-I", script(tmp_path)]
    pid = start(*(isolated if command == ["python"] else command))
    assert stacks.collect({0: pid}, {}, 0.5) == {}
    assert runs(pid)


def test_a_script_behind_a_shell_is_found(tmp_path: Path, stacks: StackDumps, start: Start) -> None:
    pid = start("sh", "-c", f"{sys.executable} {script(tmp_path)}; true")
    found = place(stacks.collect({0: pid}, {}, 30)[0])
    assert found is not None
    assert found.where == "train.py:4 load()"


def test_a_stopped_process_says_nothing_which_is_said(tmp_path: Path, stacks: StackDumps, start: Start) -> None:
    path = script(tmp_path)
    pids = {rank: start(sys.executable, path, local_rank=rank) for rank in range(2)}
    os.kill(pids[1], signal.SIGSTOP)
    texts = stacks.collect(pids, {}, 2)
    assert texts.keys() == {0}
    words = describe_ranks({rank: place(texts.get(rank)) for rank in pids})
    assert words == "rank 1 gives no stack: stopped, or stuck in the kernel; rank 0 is in train.py:4 load()"
    os.kill(pids[1], signal.SIGCONT)
    assert runs(pids[1])


def test_a_worker_that_has_ended_is_no_error(stacks: StackDumps) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert stacks.collect({0: ended.pid}, {}, 0.2) == {}


def test_a_scripts_own_signals_and_faulthandler_stay_its_own(tmp_path: Path, stacks: StackDumps, start: Start) -> None:
    code = "import faulthandler, signal; faulthandler.register(signal.SIGUSR2); faulthandler.enable()\n"
    code += "signal.signal(signal.SIGUSR1, lambda *_: print('mine', flush=True))\n"
    pid = start(sys.executable, script(tmp_path, code + SLEEP))
    assert "in load" in stacks.collect({0: pid}, {}, 30)[0]


def test_other_paths_stay_behind_ours(stacks: StackDumps) -> None:
    name = "PYTHONPATH"
    assert stacks.env(0, {name: "/a:/b"})[name].endswith("/startup:/a:/b")
    assert stacks.env(0, {})[name].endswith("/startup")


def test_nothing_is_left(tmp_path: Path, stacks: StackDumps) -> None:
    stacks.close()
    assert list((tmp_path / "stacks").iterdir()) == []


def test_the_source_around_a_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("one\ntwo\nthree\nfour\n")
    assert source_around(str(script), 2) == "one\ntwo\nthree"
    assert source_around(str(script), 99) == ""


def test_a_source_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    """A stack may name any file; one that never ends must not hold the agent up."""
    os.mkfifo(tmp_path / "pipe")
    for name in (str(tmp_path / "pipe"), "/dev/zero", str(tmp_path), str(tmp_path / "none"), "<string>", "\0"):
        assert source_around(name, 1) == ""
