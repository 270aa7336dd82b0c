"""Whole runs below this very process, from its threads too."""

import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent import StandaloneError, StandaloneResult, run_standalone
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.contract.termination import TerminationMessage
from tests.agent import functions
from tests.agent.conftest import ROOT, alive
from tests.waiting import until

WORKER = Path(__file__).parents[1] / "worker.py"
OUTER = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1", "RANK": "7", "WORLD_SIZE": "9", "LOCAL_RANK": "5"} | {
    "PET_NNODES": "3",
    "PET_NODE_RANK": "2",
    "PET_RDZV_ENDPOINT": "10.0.0.1:2",
    "PET_RDZV_BACKEND": "c10d",
    "PET_NPROC_PER_NODE": "many",
    "TORCHELASTIC_RUN_ID": "outer",
    "TORCHELASTIC_RESTART_COUNT": "4",
    "TORCHELASTIC_ERROR_FILE": "/nowhere/error",
}
FAILED = StandaloneResult(
    1, failure=TerminationMessage("WorkerFailed", 1, rank=1, message="ValueError: x", traceback="T")
)


@pytest.fixture
def outer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a worker of a job of three nodes."""
    for name, value in OUTER.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.torch
def test_runs_at_once_from_threads_below_a_worker_of_another_job(outer: None) -> None:
    pytest.importorskip("torch")
    words = ["a", "b", "c", "d"]
    with ThreadPoolExecutor(len(words)) as threads:
        results = [*threads.map(lambda word: run_standalone(functions.meet, 2, args=[word]), words)]
    assert [result.check().values for result in results] == [{0: (word, 2.0), 1: (word, 2.0)} for word in words]
    assert {name: os.environ[name] for name in OUTER} == OUTER


@pytest.mark.torch
def test_a_closure_and_its_environment(outer: None) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("cloudpickle")
    names = ("WORD", "RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "PET_NNODES")
    done = run_standalone(lambda: functions.seen(*names), env={"WORD": "mine"})
    assert done.check().values == {0: dict(zip(names, ("mine", "0", "1", "0", None), strict=True))}


@pytest.mark.torch
def test_a_function_that_fails_is_returned_with_its_traceback() -> None:
    pytest.importorskip("torch")
    done = run_standalone(functions.fail, 2, args=["1"])
    assert (done.success, done.exit_code, done.values) == (False, 1, {})
    assert done.failure is not None
    assert (done.failure.rank, done.failure.message) == (1, "ValueError: no such luck")
    assert 'raise ValueError("no such luck")' in done.failure.traceback
    with pytest.raises(StandaloneError, match="no such luck"):
        done.check()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        pytest.param("exit", 17, "exited with 17", id="a code of its own"),
        pytest.param("kill", 137, "killed by SIGKILL", id="a signal"),
    ],
)
def test_a_script_that_fails(what: str, code: int, words: str) -> None:
    pytest.importorskip("torch")
    done = run_standalone(WORKER, 2, args=[what])
    assert (done.exit_code, done.values) == (code, {})
    assert done.failure is not None
    assert words in done.failure.message


CALL = "import sys; from pytorchjob_agent import run_standalone; run_standalone(sys.argv[1], 2, args=['busy'])"
# What a shell starts in the background ignores SIGINT, and its children inherit that.
INTERRUPTIBLE = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {CALL}"
IN_THREAD = f"import threading; threading.Thread(target=exec, args=({CALL!r},)).start()"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("code", "signum"),
    [
        pytest.param(IN_THREAD, signal.SIGKILL, id="killed, while a thread waits"),
        pytest.param(INTERRUPTIBLE, signal.SIGINT, id="interrupted"),
    ],
)
def test_the_workers_go_with_the_caller(code: str, signum: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    tag = f"tag={tmp_path}"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "TAG": tag, "PYTORCHJOB_GRACE_SECONDS": "2"}
    with (
        open(tmp_path / "out", "w") as out,
        subprocess.Popen([sys.executable, "-c", code, str(WORKER)], env=env, stdout=out) as caller,
    ):
        until(lambda: "[rank1]: busy" in (tmp_path / "out").read_text())
        caller.send_signal(signum)
    until(lambda: alive(tag) == [])


@pytest.mark.torch
def test_a_port_that_is_taken_is_told() -> None:
    pytest.importorskip("torch")
    from pytorchjob_agent.system.ports import listen

    with listen(0) as taken:
        port = taken.getsockname()[1]
        done = run_standalone(WORKER, options=[f"--master-port={port}"], args=["reduce"])
    assert done.exit_code == 78
    assert done.failure is not None
    assert f"--master-port: {port} is taken by process {os.getpid()}" in done.failure.message


@pytest.mark.parametrize(
    ("what", "nproc", "env", "words"),
    [
        pytest.param(3, 1, {}, "what: 3 is neither a function nor the path of a script", id="a number"),
        pytest.param("no.py", 1, {}, "what: 'no.py' is not a file", id="a script that is not there"),
        pytest.param(WORKER, 0, {}, "nproc: 0 is not a number of processes", id="no process"),
        pytest.param(WORKER, True, {}, "nproc: True is not a number of processes", id="a switch"),
        pytest.param(WORKER, 1, {"A": 1}, "env: A: 1 is not a string: write it as '1'", id="a variable"),
    ],
)
def test_what_can_never_run(what: Any, nproc: Any, env: Any, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        run_standalone(what, nproc, env)


def test_a_result_and_its_error_travel_between_processes() -> None:
    assert pickle.loads(pickle.dumps(FAILED)) == FAILED
    assert str(pickle.loads(pickle.dumps(StandaloneError(FAILED)))) == str(StandaloneError(FAILED))
    assert str(StandaloneError(FAILED)) == "WorkerFailed: rank 1 (local rank None): ValueError: x (exit code 1)\nT"


def test_the_package_is_imported_without_torch_and_without_the_rest() -> None:
    code = (
        "import sys, pytorchjob_agent as agent; print({'torch', 'subprocess'} & set(sys.modules)); agent.run_standalone"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "operator")}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "set()\n"), done.stderr
