"""What a script may say and ask: alone, in one process under an agent, and in real groups that must agree."""

import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent.script import api
from pytorchjob_agent.script.agent_side import ProgressFiles
from pytorchjob_agent.script.api import Script
from pytorchjob_agent.script.progress_file import PROGRESS, RequestKind

ROOT = Path(__file__).parents[3]


@pytest.fixture
def files(tmp_path: Path) -> ProgressFiles:
    return ProgressFiles(tmp_path, 1)


@pytest.fixture
def script(files: ProgressFiles) -> Script:
    return Script(files.env(0)[PROGRESS])


def python(code: str, **env: str) -> str:
    """What a process prints that is no agent's."""
    own = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), **env}
    done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_outside_of_an_agent_nothing_happens() -> None:
    code = (
        "from pytorchjob_agent import *; import sys; progress(1, 2, loss=3.0);"
        "print(checkpoint_requested(), should_stop(), seconds_left(), 'torch' in sys.modules)"
    )
    assert python(code) == "False False None False"


@pytest.mark.parametrize("path", ["/nowhere/0.board", "/dev/null", str(Path(__file__))])
def test_a_progress_file_that_cannot_be_opened_stops_no_script(path: str) -> None:
    code = "from pytorchjob_agent import *; progress(1, loss=1.0); print(checkpoint_requested(), should_stop())"
    assert python(code, PYTORCHJOB_PROGRESS=path) == "False False"


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        pytest.param({"step": -1}, ValueError, "step -1", id="a negative step"),
        pytest.param({"step": 2**63}, ValueError, "expected whole numbers", id="a step beyond 63 bits"),
        pytest.param({"step": 1.5}, TypeError, "step: float is not a whole number", id="half a step"),
        pytest.param({"step": 1, "total": "9"}, TypeError, "total: str is not a whole number", id="a text for a total"),
        pytest.param({"step": 1, "total": -9}, ValueError, "of -9", id="a negative total"),
        pytest.param({"step": 1, "loss": "low"}, TypeError, "metric 'loss'", id="a metric that is no number"),
    ],
)
def test_a_wrong_word_is_refused_also_without_an_agent(
    arguments: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as caught:
        api.progress(**arguments)
    assert words in str(caught.value)


def test_every_must_be_a_distance(script: Script) -> None:
    with pytest.raises(ValueError, match="every: 0 is not a number of calls"):
        script.checkpoint_requested(0)


def test_a_request_is_true_once(files: ProgressFiles, script: Script) -> None:
    assert not script.checkpoint_requested(1)
    files.request(RequestKind.CHECKPOINT)
    assert [script.checkpoint_requested(1) for _ in range(3)] == [True, False, False]
    files.request(RequestKind.CHECKPOINT)
    files.request(RequestKind.CHECKPOINT)
    assert [script.checkpoint_requested(1) for _ in range(2)] == [True, False]


def test_a_save_is_done_when_the_script_calls_again(files: ProgressFiles, script: Script) -> None:
    files.request(RequestKind.CHECKPOINT)
    assert script.checkpoint_requested(1)
    assert files.read()[0].answered == 0
    script.report(1, None, {})
    assert files.read()[0].answered == 1


def test_another_threads_word_is_no_answer(files: ProgressFiles, script: Script) -> None:
    files.request(RequestKind.CHECKPOINT)
    assert script.checkpoint_requested(1)
    other = threading.Thread(target=script.report, args=(1, None, {}))
    other.start()
    other.join()
    assert files.read()[0].answered == 0
    script.checkpoint_requested(1)
    assert files.read()[0].answered == 1


def test_asked_at_each_third_call_only(files: ProgressFiles, script: Script) -> None:
    files.request(RequestKind.CHECKPOINT)
    assert [script.checkpoint_requested(3) for _ in range(6)] == [False, False, True, False, False, False]


def test_to_stop_is_for_good(files: ProgressFiles, script: Script) -> None:
    assert not script.should_stop(1)
    files.request(RequestKind.STOP)
    assert [script.should_stop(1) for _ in range(3)] == [True, True, True]


def test_to_stop_at_each_third_call_is_known_from_then_on(files: ProgressFiles, script: Script) -> None:
    files.request(RequestKind.STOP)
    assert [script.should_stop(3) for _ in range(5)] == [False, False, True, True, True]


def test_a_script_that_asks_both_saves_before_it_stops(files: ProgressFiles, script: Script) -> None:
    assert (script.checkpoint_requested(1), script.should_stop(1)) == (False, False)
    files.request(RequestKind.STOP)
    assert not script.should_stop(1)
    assert (script.checkpoint_requested(1), script.should_stop(1)) == (True, True)
    assert (script.checkpoint_requested(1), script.should_stop(1)) == (False, True)


def test_a_script_that_only_saves_does_so_before_the_end(files: ProgressFiles, script: Script) -> None:
    files.request(RequestKind.STOP)
    assert [script.checkpoint_requested(1) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("end", "left"),
    [
        pytest.param("", True, id="at its end"),
        pytest.param("sys.exit()", True, id="as it leaves"),
        pytest.param("raise ValueError('no')", False, id="not where it fails"),
        pytest.param("os._exit(0)", False, id="not where it just vanishes"),
        pytest.param("os.fork() or sys.exit(); os.wait(); os._exit(0)", False, id="not for a process of its own"),
    ],
)
def test_a_script_that_was_told_to_end_says_that_it_does_before_its_interpreter_has_ended(
    files: ProgressFiles, end: str, left: bool
) -> None:
    files.request(RequestKind.STOP)
    code = f"import os, sys\nimport pytorchjob_agent.script.api as t\nassert t.should_stop()\n{end}"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), **files.env(0)}
    subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, timeout=60, check=False)
    assert files.read()[0].left == int(left)


def test_a_script_that_ends_without_being_told_says_nothing(files: ProgressFiles) -> None:
    files.request(RequestKind.STOP)
    python("import pytorchjob_agent.script.api as t\nt.progress(1)", **files.env(0))
    assert files.read()[0].left == 0


def test_the_time_that_is_left(files: ProgressFiles, monkeypatch: pytest.MonkeyPatch, script: Script) -> None:
    monkeypatch.setattr(api, "_script", script)
    assert api.seconds_left() is None
    files.request(RequestKind.STOP, seconds=1000)
    left = api.seconds_left()
    assert left is not None
    assert 900 < left <= 1000


def test_threads_may_report_at_once(files: ProgressFiles, script: Script) -> None:
    def report(name: str) -> None:
        for step in range(500):
            script.report(step, None, {name: 1.0})

    threads = [threading.Thread(target=report, args=(name,)) for name in "abcd"]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    said = files.read()[0]
    assert said.step == 499
    assert set(said.metrics) < set("abcd")


def test_a_fork_does_not_inherit_a_held_lock(files: ProgressFiles) -> None:
    code = """
import os, pytorchjob_agent.script.api as t
t.progress(1)
with t._script._lock:
    pid = os.fork()
    if pid == 0:
        t.progress(2)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert python(code, **files.env(0)) == "0"
    assert files.read()[0].step == 2


# Real groups: two processes of gloo, each with the progress file of an agent of its own.


def member(rank: int, path: str, store: str, asked: int, backend: str, results: Any) -> None:
    """Train a little; at step 3 the agent of one rank asks; say at which steps the answers were True."""
    import torch.distributed as dist

    os.environ[PROGRESS] = path
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
    saved, stopped = [], []
    for step in range(8):
        if step == 3 and rank == asked:
            _ask(path)
        api.progress(step)
        if api.checkpoint_requested():
            saved.append(step)
        if api.should_stop():
            stopped.append(step)
    results.put((rank, saved, stopped))
    dist.destroy_process_group()


def _ask(path: str) -> None:
    import mmap

    from pytorchjob_agent.script.progress_file import SIZE, ProgressFile

    with open(path, "r+b") as file:
        ProgressFile(memoryview(mmap.mmap(file.fileno(), SIZE))).request(RequestKind.STOP, 1, None)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("asked", "backend"),
    [
        pytest.param(0, "gloo", id="rank 0"),
        pytest.param(1, "gloo", id="rank 1"),
        pytest.param(1, "cuda:gloo", id="a default group for GPUs alone"),
    ],
)
def test_all_ranks_see_one_ranks_request_at_the_same_step(tmp_path: Path, asked: int, backend: str) -> None:
    pytest.importorskip("torch")
    files = ProgressFiles(tmp_path, 2)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    paths = [files.env(rank)[PROGRESS] for rank in range(2)]
    store = str(tmp_path / "store")
    members = [
        context.Process(target=member, args=(rank, paths[rank], store, asked, backend, results)) for rank in range(2)
    ]
    for one in members:
        one.start()
    found = sorted(results.get(timeout=100) for _ in members)
    for one in members:
        one.join()
    assert found == [(0, [3], [3, 4, 5, 6, 7]), (1, [3], [3, 4, 5, 6, 7])]
    assert [file.answered for file in files.read()] == [1, 1]
    files.close()
