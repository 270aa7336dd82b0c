"""Two ranks with gloo that hang in collectives, or only look like it. The scripts are those of benchmarks/hangs."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
from torch.distributed import ProcessGroup

from pytorchjob_agent.hangs.meter import WorkerMeter
from pytorchjob_agent.hangs.standing import job_still_for
from pytorchjob_agent.hangs.stillness import Pauses
from pytorchjob_agent.stacks.recorders import Recorders
from pytorchjob_agent.stacks.stack_dump import StackDumps
from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.torch]
TRAIN = Path(__file__).parents[3] / "benchmarks/hangs/train.py"
LIMIT = 12.0
PAUSE = 0.5
WAITS_FOR_DEVICE = pytest.param(
    "waits-for-device",
    marks=pytest.mark.skipif(
        not hasattr(ProcessGroup, "register_pre_hook"), reason="this torch has no hooks of process groups"
    ),
)


class Ranks:
    """Two ranks of one pod, beyond their first steps."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.stacks, self.recorders, self.port = StackDumps(folder, 2), Recorders(folder, 2), free_port()
        self.outputs = [folder / f"{rank}.log" for rank in range(2)]
        self.processes = [self._start(rank, kind) for rank in range(2)]
        until(lambda: all(" begins" in output.read_text() for output in self.outputs), seconds=100)
        pids = {rank: process.pid for rank, process in enumerate(self.processes)}
        self.meter = WorkerMeter(pids, self.stacks, Pauses(LIMIT), self.port, self.recorders)

    def _start(self, rank: int, kind: str) -> subprocess.Popen[bytes]:
        place = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.port, "KIND": kind}
        env = {**os.environ, "OMP_NUM_THREADS": "1", "BATCH_SECONDS": "3", "GLOO_SOCKET_IFNAME": "lo"}
        env |= {name: str(value) for name, value in place.items()} | self.stacks.env(rank, env)
        env |= self.recorders.env(rank)
        with self.outputs[rank].open("wb") as out:
            return subprocess.Popen([sys.executable, TRAIN], env=env, stdout=out, stderr=subprocess.STDOUT)

    def still(self) -> float:
        """Measure, and return for how long they have been still."""
        now = time.monotonic()  # noqa: TID251  the scripts live in real time
        self.meter.measure(now)
        return job_still_for(self.meter.standings(now), ())

    def end(self) -> None:
        for process in self.processes:
            subprocess.run(["pkill", "-9", "-P", str(process.pid)], check=False)
            process.kill()
            process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Ranks]]:
    started: list[Ranks] = []

    def begin(kind: str) -> Ranks:
        started.append(Ranks(tmp_path, kind))
        return started[-1]

    yield begin
    for ranks in started:
        ranks.end()


@pytest.mark.parametrize("kind", ["never-entered", "spins", "stuck-loader", "lock", WAITS_FOR_DEVICE])
def test_a_hang_of_two_ranks_is_noticed(start: Callable[[str], Ranks], kind: str) -> None:
    ranks = start(kind)
    until(lambda: ranks.still() > LIMIT, seconds=100, every=PAUSE)


@pytest.mark.long  # beside other tests a rank may get no CPU for as long as a hang would last
@pytest.mark.parametrize("kind", ["evaluates", "loads-slowly", "compiles", "debugged"])
def test_ranks_that_wait_for_a_working_one_are_left_alone(start: Callable[[str], Ranks], kind: str) -> None:
    ranks, longest = start(kind), 0.0
    for _ in range(int(3 * LIMIT / PAUSE)):
        longest = max(longest, ranks.still())
        time.sleep(PAUSE)
    assert longest <= LIMIT
