"""The hooks that measure a rank's own time: real ranks with gloo, of which one is slower."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from torch.distributed import ProcessGroup

from pytorchjob_agent.workers.startup import pytorchjob_collectives, pytorchjob_startup
from pytorchjob_agent.workers.startup.pytorchjob_collectives import OWN_TIME, SIZE
from tests.ports import free_port
from tests.waiting import again

pytestmark = [pytest.mark.torch]
STARTUP = Path(pytorchjob_startup.__file__).parent
HOOKS = hasattr(ProcessGroup, "register_pre_hook")
WITHOUT_HOOKS = pytest.mark.skipif(not HOOKS, reason="this torch has no hooks of process groups")

BEGIN = """
import os, sys, time
import torch, torch.distributed as dist
sys.modules["pytorchjob_own_time"].WINDOW = 500_000_000
dist.init_process_group("gloo")
rank = dist.get_rank()
seconds = 0.05 if rank == 0 else 0.02
"""
DDP = """
class Slow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), NORM)
    def forward(self, x):
        time.sleep(seconds)
        return self.layers(x)
model = torch.nn.parallel.DistributedDataParallel(Slow())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(40):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""
BLOCKS = """
for _ in range(40):
    time.sleep(seconds)
    dist.all_reduce(torch.ones(1))
"""
SENDS = """
for _ in range(40):
    dist.send(torch.ones(1), 1) if rank == 0 else dist.recv(torch.ones(1), 0)
    dist.all_reduce(torch.ones(1))
    time.sleep(seconds)
"""
SCRIPTS = {
    "gradients of DistributedDataParallel": BEGIN + DDP.replace("NORM", "torch.nn.Linear(8, 8)"),
    "DistributedDataParallel with buffers": BEGIN + DDP.replace("NORM", "torch.nn.BatchNorm1d(8)"),
    "collectives that block": BEGIN + BLOCKS,
}


def run(folder: Path, script: str) -> list[tuple[int, float] | None]:
    """Each rank's number of windows, and the share of own time in the last."""
    files = [folder / f"{rank}.own" for rank in range(2)]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    workers = []
    for rank, file in enumerate(files):
        file.write_bytes(bytes(SIZE))
        own = {OWN_TIME: str(file), "RANK": str(rank), "PYTHONPATH": str(STARTUP), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", script]
        workers.append(subprocess.Popen(command, env=os.environ | address | own, stderr=subprocess.PIPE, text=True))
    try:
        errors = [worker.communicate(timeout=200)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert [worker.returncode for worker in workers] == [0, 0], errors
    assert not any("not measured" in text or "not available" in text for text in errors)
    read = [pytorchjob_collectives.read(file.read_bytes()) for file in files]
    return [None if found is None else (found[0], found[1] / found[2]) for found in read]


@WITHOUT_HOOKS
@pytest.mark.parametrize("script", [pytest.param(script, id=name) for name, script in SCRIPTS.items()])
def test_the_slow_rank_has_the_largest_share_of_own_time(tmp_path: Path, script: str) -> None:
    def compare(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        slow, fast = run(folder, script)
        assert slow is not None
        assert fast is not None
        assert slow[1] > 1.2 * fast[1], "a rank that waits for a CPU has own time too"

    again(compare)


@WITHOUT_HOOKS
def test_the_ranks_of_a_pipeline_are_not_measured(tmp_path: Path) -> None:
    assert run(tmp_path, BEGIN + SENDS) == [None, None]


def test_a_torch_without_hooks_trains_and_is_not_measured(tmp_path: Path) -> None:
    """The oldest torch has none; with a later one the same ranks are measured."""
    found = run(tmp_path, SCRIPTS["gradients of DistributedDataParallel"])
    assert [each is not None for each in found] == [HOOKS, HOOKS]


def test_a_rank_without_the_variable_has_no_hooks(tmp_path: Path) -> None:
    script = (
        "import torch.distributed as dist; from torch.distributed import distributed_c10d as c10d; "
        "print(c10d._new_process_group_helper.__module__)"
    )
    own = {name: value for name, value in os.environ.items() if name != OWN_TIME} | {"PYTHONPATH": str(STARTUP)}
    done = subprocess.run([sys.executable, "-c", script], env=own, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["torch.distributed.distributed_c10d"]
