"""Real torch workers, forked: what LocalElasticAgent makes of them, and what torch is like in them."""

import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.launcher.api import LaunchConfig

from pytorchjob_agent import torch_compat
from pytorchjob_agent.rendezvous import single_node
from pytorchjob_agent.workers import start_choice, warm
from pytorchjob_agent.workers.fork_client import ForkServer

# torch leaves closing the workers' files to the collector.
closing = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [pytest.mark.torch, *map(pytest.mark.filterwarnings, closing)]


class Agent(LocalElasticAgent):
    """torch's agent as the launcher uses it: workers come from the server."""

    server: ForkServer | None

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        with warm.warm_starts(self.server):
            return super()._start_workers(worker_group)


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """A fork server with all that it imports by default."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        one = ForkServer.start(start_choice.preloaded_modules({}))
    yield one
    one.close()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Run a script in two workers and return torch's result and what they wrote, by local rank and stream."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")

    def start(server: ForkServer | None, source: str, restarts: int = 0) -> tuple[RunResult, dict[str, str]]:
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(source))
        logs = tmp_path / f"logs-{'warm' if server else 'cold'}"
        specs = DefaultLogsSpecs(log_dir=str(logs), **torch_compat.supported(DefaultLogsSpecs, redirects=Std.ALL))
        agent = Agent(_spec([str(script)], restarts), specs)
        agent.server = server
        result = agent.run()
        written = {"/".join(path.parts[-3:]): path.read_text() for path in logs.rglob("*.log") if path.stat().st_size}
        return result, written

    handlers = {
        number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    }
    yield start
    for one, handler in handlers.items():  # torch takes them
        signal.signal(one, handler)


def _spec(command: list[str], restarts: int) -> WorkerSpec:
    place = RendezvousParameters(single_node.BACKEND, "127.0.0.1:0", "run", 1, 1)
    return WorkerSpec(
        role="default",
        local_world_size=2,
        rdzv_handler=single_node.create(place),
        entrypoint=sys.executable,
        args=("-u", *command),
        max_restarts=restarts,
        monitor_interval=0.05,
    )


TRAIN = """
import os, sys, torch, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

def main(method):
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    data = TensorDataset(torch.arange(32.0).reshape(8, 4))
    for (batch,) in DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context=method):
        model(batch).sum().backward()
    print(os.environ["RANK"], torch.get_num_threads(), torch.initial_seed(), f"{model.module.weight.grad.sum():.3f}")
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.manual_seed(1)
    main("fork" if os.environ["RANK"] == "0" else "spawn")
    print(torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork(), os.environ["TORCHELASTIC_RESTART_COUNT"])
"""
FAIL = """
import os, sys
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    if os.environ["RANK"] == "1":
        raise ValueError("no such luck")
    import time
    time.sleep(600)

main()
"""


ONCE = """
import os, sys
print(os.environ["TORCHELASTIC_RESTART_COUNT"])
sys.exit(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
"""


LEFT = """
import atexit, logging, logging.handlers, os, sys

if os.environ["RANK"] == "1":
    sys.exit()  # else the agent would kill the slower of two failed workers

class Module:
    def __del__(self):
        os.write(2, b"freed")

module = Module()
target = logging.StreamHandler()
logging.getLogger().addHandler(logging.handlers.MemoryHandler(100, target=target))
logging.warning("logged")
atexit.register(lambda: os.write(2, b"left"))
raise ValueError("no such luck")
"""


def test_a_program_that_an_error_has_left_frees_nothing(run: Any, server: ForkServer) -> None:
    result, written = run(server, LEFT)
    assert result.failures[0].exitcode == 1
    error = written["attempt_0/0/stderr.log"]
    assert all(word in error for word in ("no such luck", "left", "logged"))
    assert "freed" not in error


def test_training_is_the_same_in_both_ways(run: Any, server: ForkServer) -> None:
    result, written = run(server, TRAIN)
    assert not result.is_failed(), written
    assert (result, written) == run(None, TRAIN)
    assert "0 1 1 " in written["attempt_0/0/stdout.log"]
    assert "False False 0" in written["attempt_0/1/stdout.log"]


def test_a_failure_is_recorded_and_the_others_are_stopped(run: Any, server: ForkServer) -> None:
    result, written = run(server, FAIL)
    codes = {rank: failure.exitcode for rank, failure in result.failures.items()}
    assert (codes.pop(0, -15), codes) == (-15, {1: 1})  # torch 2.4 keeps no record of those that it stopped
    assert result.failures[1].error_file_data["message"]["message"] == "ValueError: no such luck"
    assert written["attempt_0/1/stderr.log"].endswith("ValueError: no such luck\n")


def test_every_round_has_its_own_variables(run: Any, server: ForkServer) -> None:
    result, written = run(server, ONCE, restarts=1)
    assert not result.is_failed()
    assert [written[f"attempt_{number}/0/stdout.log"] for number in (0, 1)] == ["0\n", "1\n"]


def test_a_worker_that_has_waited_trains_like_any_other(run: Any, server: ForkServer, tmp_path: Path) -> None:
    server.makes_ready = True
    try:
        run(server, ONCE)  # its workers start, and then processes wait for those of the next run
        waiting = server.pids()
        shutil.rmtree(tmp_path / "logs-warm")
        result, written = run(server, f"{TRAIN}    print('process', os.getpid())")
    finally:
        server.makes_ready = False
    assert not result.is_failed(), written
    said = [written[f"attempt_0/{rank}/stdout.log"] for rank in (0, 1)]
    assert {int(text.split()[-1]) for text in said} < waiting
    assert said[0].startswith("0 1 1 ")


def test_threads_of_a_round_count(server: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch; print(torch.get_num_threads())")
    with open(tmp_path / "out", "w") as out:
        worker = server.popen([sys.executable, "-u", str(script)], os.environ | {"OMP_NUM_THREADS": "3"}, out, None)
    assert worker is not None
    assert worker.wait(60) == 0
    assert (tmp_path / "out").read_text() == "3\n"


def test_a_server_that_started_a_gpu_is_not_forked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Without a GPU torch cannot start one: the module says that it did, where torch keeps it."""
    (tmp_path / "eager.py").write_text("import torch\ntorch.cuda._initialized = True")
    (tmp_path / "train.py").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        one = ForkServer.start(["torch", "eager"])
        assert one.popen([sys.executable, "-u", str(tmp_path / "train.py")], {**os.environ}, None, None) is None
    one.close()
    assert "uses the GPU (torch.cuda)" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("env", "options", "started", "words"),
    [
        pytest.param({}, ("-u", "train.py"), False, "", id="nobody asked"),
        pytest.param({"PYTORCHJOB_START_MODE": "warm"}, ("-u", "train.py"), True, "", id="asked"),
        pytest.param({"PYTORCHJOB_START_MODE": "warm"}, ("train.sh",), False, "cold: --no-python", id="in vain"),
    ],
)
def test_the_beginning(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    env: dict[str, str],
    options: tuple[str, ...],
    started: bool,
    words: str,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=1)
    one = warm.start_server(config, (sys.executable, list(options)))
    assert (one is not None) is started
    assert words in capsys.readouterr().err
    if one is not None:
        one.close()
