"""Which failure caused the others: rank, error and next step, as workers note errors and as programs print them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytorchjob.local import worker_ends
from pytorchjob.local.failure import report
from pytorchjob.local.node import ReplicaEnd
from pytorchjob_agent.contract import noted_end
from pytorchjob_agent.contract.noted_end import ENDS
from pytorchjob_agent.contract.printed_error import last_error
from pytorchjob_agent.contract.root_cause import CHILD_FAILED, Evidence, choose, is_peer_gone
from pytorchjob_agent.workers.startup import pytorchjob_ending
from pytorchjob_agent.workers.uncaught_error import read
from pytorchjob_operator.model import PyTorchJob
from tests.local.jobs import job, role

STARTUP = Path(__file__).parents[1] / "operator/pytorchjob_agent/workers/startup"
BACKEND, NETWORK = "torch.distributed.DistBackendError", "torch.distributed.DistNetworkError"
STORE, PLAIN = "torch.distributed.DistStoreError", "RuntimeError"
C10D = "torch.distributed.c10d_logger"


def of(rank: int, at: float, *errors: str, code: int = 1, module: str = "__main__") -> Evidence:
    return Evidence(at, rank, code, errors, module)


def test_the_hook_has_the_names_of_the_contract() -> None:
    assert (pytorchjob_ending.ENDS, pytorchjob_ending.SUFFIX) == (noted_end.ENDS, noted_end.SUFFIX)


EARLY = Evidence(1, 0, 0, early=True)


@pytest.mark.parametrize(
    ("first", "second", "rank"),
    [
        pytest.param(of(0, 1, "OSError"), of(1, 5, "ValueError"), 0, id="two errors of the script"),
        pytest.param(of(0, 5, "OSError"), of(1, 1, "ValueError"), 1, id="in the other order"),
        pytest.param(of(0, 1, BACKEND), of(1, 1.1, BACKEND), 0, id="NCCL without a GPU"),
        pytest.param(of(0, 1, NETWORK), of(1, 300, STORE), 0, id="a port in use"),
        pytest.param(of(0, 1, BACKEND), of(1, 1.2, "KeyError"), 1, id="the peer notices before the cause is noted"),
        pytest.param(of(0, 1, PLAIN, module=C10D), of(1, 1.2, "KeyError"), 1, id="as gloo reports it"),
        pytest.param(of(0, 1, PLAIN, module="torch.autograd.graph"), of(1, 2, "KeyError"), 1, id="in a backward"),
        pytest.param(of(0, 1, PLAIN, module="model"), of(1, 2, "KeyError"), 0, id="a plain error of the script"),
        pytest.param(of(0, 1, "MemoryError"), of(1, 2, BACKEND), 0, id="no memory"),
        pytest.param(of(0, 1, code=137), of(1, 2, BACKEND), 0, id="killed for its memory"),
        pytest.param(of(0, 1, BACKEND), of(1, 2, code=137), 1, id="killed, and noticed late"),
        pytest.param(of(0, 1, code=139), of(1, 2, BACKEND), 0, id="a crash in native code"),
        pytest.param(of(0, 1, code=134), of(1, 2, code=139), 1, id="aborted for a peer that crashed"),
        pytest.param(of(0, 1, code=143), of(1, 2, "KeyError"), 1, id="stopped by the agent"),
        pytest.param(of(0, 1, code=3), of(1, 2, BACKEND), 0, id="an exit code of the script's own"),
        pytest.param(of(0, 1, "ModuleNotFoundError"), of(1, 1, "ModuleNotFoundError"), 0, id="at once: the lowest"),
        pytest.param(of(0, 1, "ConnectionResetError"), of(1, 2, "KeyError"), 1, id="a connection of the script"),
        pytest.param(of(0, 1, "ConnectionRefusedError"), of(1, 2, BACKEND), 0, id="a data server that is down"),
        pytest.param(of(0, 1, "ValueError", BACKEND), of(1, 2, "KeyError"), 1, id="an error about a lost peer"),
        pytest.param(of(0, 2, "KeyError"), of(1, 1, BACKEND, "KeyError"), 1, id="a collective in a handler"),
        pytest.param(of(0, 1, CHILD_FAILED), of(1, 2, "KeyError"), 1, id="torchrun without a reason"),
        pytest.param(of(0, 1, code=201), of(1, 2, "KeyError"), 1, id="an agent that found no store"),
        pytest.param(of(0, 1, "TimeoutError"), of(1, 2, BACKEND), 0, id="a time limit of the script"),
        pytest.param(EARLY, of(1, 2, PLAIN, module=C10D), 0, id="a rank that has ended"),
        pytest.param(EARLY, of(1, 0.9, NETWORK), 0, id="and is seen to end later"),
        pytest.param(EARLY, of(1, 2, code=134), 0, id="and whose peer is aborted"),
        pytest.param(EARLY, Evidence(200, 1, 1, hang=True, waits=True), 0, id="and whose peer waits for it"),
        pytest.param(EARLY, Evidence(200, 1, 1, hang=True), 1, id="a hang elsewhere after another rank's end"),
        pytest.param(EARLY, of(1, 2, "KeyError"), 1, id="an error after another rank's end"),
        pytest.param(EARLY, of(1, 2, code=137), 1, id="a kill after another rank's end"),
        pytest.param(EARLY, of(1, 2, code=143), 1, id="a stop after another rank's end"),
        pytest.param(EARLY, of(1, 2, CHILD_FAILED), 1, id="torchrun without a reason after another rank's end"),
    ],
)  # fmt: skip
def test_the_rank_that_caused_the_failure(first: Evidence, second: Evidence, rank: int) -> None:
    assert choose([first, second], lambda known: known).rank == rank
    assert choose([second, first], lambda known: known).rank == rank


CHAIN = "try:\n  {}['a']\nexcept KeyError as error:\n  raise ValueError('b') from error"
NOTED = "try:\n  exec('1 +')\nexcept SyntaxError as error:\n  error.add_note('a note')\n  raise"
LOADER = r"""
class E(Exception): pass
raise ValueError("Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
                 "  File \"d.py\", line 3, in __getitem__\nValueError: 7\n")
"""


@pytest.mark.parametrize(
    ("code", "errors", "message"),
    [
        pytest.param("raise OSError(5, 'no data')", ["OSError"], "OSError: [Errno 5] no data", id="an error"),
        pytest.param("import nowhere", ["ModuleNotFoundError"], "ModuleNotFoundError: No module named 'nowhere'",
                     id="an import"),
        pytest.param("print('a'", ["SyntaxError"], "SyntaxError: '(' was never closed", id="a wrong syntax"),
        pytest.param("if 1:\npass", ["IndentationError"],
                     "IndentationError: expected an indented block after 'if' statement on line 1",
                     id="a wrong indent"),
        pytest.param(NOTED, ["SyntaxError"], "SyntaxError: invalid syntax", id="a wrong syntax with a note"),
        pytest.param(CHAIN, ["ValueError", "KeyError"], "ValueError: b", id="a chain"),
        pytest.param("import json\njson.loads('{')", ["json.decoder.JSONDecodeError"],
                     "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2"
                     " (char 1)", id="a library's error"),
        pytest.param("class Mine(Exception): pass\nraise Mine('x')", ["Mine"], "Mine: x", id="the script's own type"),
        pytest.param("raise ValueError('a\\nb')", ["ValueError"], "ValueError: a", id="two lines"),
        pytest.param(LOADER, ["ValueError"], "ValueError: 7", id="a DataLoader's"),
        pytest.param("import sys\nsys.excepthook = lambda *_: None\nraise KeyError('k')", ["KeyError"], "KeyError: 'k'",
                     id="with a hook of the script's own"),
        pytest.param("import sys\nsys.exit(3)", [], "", id="an exit code is no error"),
        pytest.param("pass", [], "", id="success is no error"),
        pytest.param("import os, subprocess, sys\nsubprocess.run([sys.executable, '-c', '1/0'])\nos._exit(1)", [], "",
                     id="the error of a program that it starts"),
    ],
)  # fmt: skip
def test_what_a_worker_notes(code: str, errors: list[str], message: str, tmp_path: Path) -> None:
    script, noted = tmp_path / "train.py", tmp_path / "error.json"
    script.write_text(code)
    env = {**os.environ, "PYTHONPATH": str(STARTUP), "TORCHELASTIC_ERROR_FILE": str(noted)}
    with subprocess.Popen([sys.executable, str(script)], env=env, stderr=subprocess.DEVNULL) as worker:
        worker.wait()
    found = read(str(noted), worker.pid)
    assert (list(found.errors), found.message) == (errors, message)
    if errors:
        assert found.code is None


@pytest.mark.parametrize(
    ("code", "number"),
    [
        pytest.param("raise error", 214, id="the error itself"),
        pytest.param("raise ValueError('no batch') from error", 214, id="the error behind another one"),
        pytest.param("del error.error_code\nraise error", 0, id="an older torch does not tell it"),
        pytest.param("other = OSError()\nother.error_code = 214\nraise other", 0, id="an error of another kind"),
    ],
)
def test_the_number_of_a_device_error_is_noted(code: str, number: int, tmp_path: Path) -> None:
    """A stand-in for torch, whose error only a device can raise with a number."""
    (tmp_path / "torch.py").write_text("class AcceleratorError(RuntimeError):\n    pass\n")
    script, noted = tmp_path / "train.py", tmp_path / "error.json"
    script.write_text(f"import torch\nerror = torch.AcceleratorError('CUDA error')\nerror.error_code = 214\n{code}\n")
    env = {**os.environ, "PYTHONPATH": str(STARTUP), "TORCHELASTIC_ERROR_FILE": str(noted)}
    with subprocess.Popen([sys.executable, str(script)], env=env, stderr=subprocess.DEVNULL) as worker:
        worker.wait()
    assert read(str(noted), worker.pid).device_error == number


SPAWNS = "import subprocess, sys; subprocess.run([sys.executable, '-c', '1'])"
FORKS = "import os, sys\nif os.fork() == 0: sys.exit(5)\nos.wait()"
THREAD = "import sys, threading\nthread = threading.Thread(target=sys.exit, args=(4,)); thread.start(); thread.join()"


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        pytest.param("pass", [0], id="success"),
        pytest.param("import sys; sys.exit(3)", [3], id="a code"),
        pytest.param("import sys; sys.exit('no data')", [1], id="a text"),
        pytest.param("import os; os._exit(3)", [], id="an end without exit handlers"),
        pytest.param("1/0", [None], id="an error"),
        pytest.param(None, [], id="a script that does not exist"),
        pytest.param(f"{SPAWNS}; sys.exit(3)", [3], id="and not that of a program that it starts"),
        pytest.param(FORKS, [0], id="nor that of a fork"),
        pytest.param(THREAD, [0], id="nor that of a thread"),
    ],
)
@pytest.mark.parametrize("launched", [False, True], ids=["python", "below a launcher"])
def test_the_end_that_a_worker_notes(code: str | None, ends: list[int | None], launched: bool, tmp_path: Path) -> None:
    launcher = "import os, subprocess, sys; os.environ['TORCHELASTIC_ERROR_FILE'] = 'none'"
    launch = f"{launcher}; subprocess.run([sys.executable, sys.argv[1]]); os._exit(0)"
    script = tmp_path / "train.py"
    if code is not None:
        script.write_text(code)
    env = {**os.environ, "PYTHONPATH": str(STARTUP), ENDS: str(tmp_path), "RANK": "2"}
    argv = [sys.executable, *(["-c", launch] if launched else []), str(script)]
    subprocess.run(argv, env=env, stderr=subprocess.DEVNULL, check=False)
    assert [(rank, noted.code) for rank, noted in worker_ends.read(env)] == [(2, end) for end in ends]


@pytest.mark.parametrize("package", ["", "pytorchjob_agent.workers.startup."], ids=["cold worker", "warm worker"])
def test_an_error_in_a_hooked_collective_is_one_of_the_collective(package: str, tmp_path: Path) -> None:
    script, noted = tmp_path / "train.py", tmp_path / "error.json"
    script.write_text(f"from {package}pytorchjob_collectives import _OwnTime\n_OwnTime._timed(None, int)('torch')\n")
    env = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(noted)}
    env["PYTHONPATH"] = os.pathsep.join([str(STARTUP), str(STARTUP.parents[2])])
    with subprocess.Popen([sys.executable, str(script)], env=env, stderr=subprocess.DEVNULL) as worker:
        worker.wait()
    assert is_peer_gone([PLAIN], read(str(noted), worker.pid).raised_in)


BEGIN = "Traceback (most recent call last):"
TORCHRUN = "\n".join(
    [BEGIN, '  File "/usr/bin/torchrun", line 10, in <module>', "    sys.exit(main())",
     "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "=" * 60, "train.py FAILED", "-" * 60,
     "Root Cause (first observed failure):", "  rank      : 1 (local_rank: 1)", "  exitcode  : -11 (pid: 7)", "=" * 60]
)  # fmt: skip
BOTH = (
    TORCHRUN.replace(": 1 (local", ": 0 (local")
    .replace("-11", "1")
    .replace("Root Cause", "Failures:\n[1]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 8)\nRoot Cause")
)
VALUE = f'{BEGIN}\n  File "t.py", line 1, in <module>\nValueError: x\n'
PEER = f'[rank0]: {BEGIN}\n[rank0]:   File "t.py", line 1, in f\n[rank0]: {NETWORK}: gone\n'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(VALUE, "ValueError: x", id="an error"),
        pytest.param(VALUE + TORCHRUN, "ValueError: x", id="below torchrun"),
        pytest.param(VALUE + PEER + TORCHRUN, "ValueError: x", id="and a peer that lost it"),
        pytest.param(PEER, f"{NETWORK}: gone", id="a lost peer alone"),
        pytest.param(PEER + TORCHRUN, "rank 1 exited with code -11 (torchrun)", id="a peer that lost one that crashed"),
        pytest.param(PEER + BOTH, "rank 1 exited with code -9 (torchrun)", id="and that torchrun saw first"),
        pytest.param(PEER + BOTH.replace("-9", "-15"), f"{NETWORK}: gone", id="and that torchrun has stopped"),
        pytest.param(PEER + VALUE + BOTH, "ValueError: x", id="and one with an error of its own"),
        pytest.param(TORCHRUN, "rank 1 exited with code -11 (torchrun)", id="torchrun's report alone"),
        pytest.param(TORCHRUN[-300:], "rank 1 exited with code -11 (torchrun)", id="the end of it"),
        pytest.param("a\nb\n\n", "b", id="no error"),
        pytest.param("a\n" + "=" * 60, "a", id="a line of signs"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_the_error_in_what_a_program_printed(text: str, error: str) -> None:
    assert last_error(text) == error


@pytest.mark.parametrize(
    ("error", "step"),
    [
        pytest.param("ModuleNotFoundError: No module named 'tqdm'", "tqdm", id="a missing module"),
        pytest.param("ModuleNotFoundError: No module named 'sklearn.svm'", "scikit-learn", id="of another name"),
        pytest.param("ValueError: nccl2 requires at least one CUDA device", "gloo", id="NCCL without a GPU"),
        pytest.param("RuntimeError: No CUDA GPUs are available", "CPU", id="no GPU"),
        pytest.param(f"{NETWORK}: EADDRINUSE", "MASTER_PORT", id="a port in use"),
        pytest.param("MemoryError", "nprocPerNode", id="no memory"),
        pytest.param("killed by SIGKILL", "nprocPerNode", id="killed"),
    ],
)
def test_the_next_step(error: str, step: str) -> None:
    code = 137 if "SIGKILL" in error else 1
    end = ReplicaEnd("worker-0", "exited with 1", error, "", of(0, 1, "ValueError", code=code))
    condition = {"type": "Failed", "status": "True", "message": "the job has failed"}
    made = PyTorchJob.model_validate({**job(Worker=role(["x"])), "status": {"conditions": [condition]}})
    assert step in report(made, [end], lambda *_: None)[-1]
