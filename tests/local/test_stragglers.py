"""A slow rank of real workers, from the measurement in the worker to the event of a local run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.local.jobs import Run, job, role

Start = Callable[..., Run]
COMMAND = ["pytorchjob-agent", "run", "--", "--nproc-per-node", "1", "train.py"]

TRAINS = """
import os, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
SLOW = dist.get_rank() == 1
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def forward(self, x):
        time.sleep(0.14 if SLOW and os.path.exists("slow") else 0.1)
        return self.layer(x)
model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
begun, end = time.monotonic(), torch.zeros(1)
while not end:
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    end[0] = time.monotonic() - begun > SECONDS
    dist.broadcast(end, 0)
"""


def begin(start: Start, folder: Path, seconds: float, script: str = TRAINS) -> Run:
    (folder / "train.py").write_text(script.replace("SECONDS", str(seconds)))
    threads = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    return start(job(Master=role(COMMAND, env=threads), Worker=role(COMMAND, replicas=2, env=threads)))


@pytest.mark.long
@pytest.mark.torch
def test_a_slow_rank_is_named_until_it_is_as_fast_as_the_others(start: Start, tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    run = begin(start, tmp_path, 600)
    run.until("StragglerFound: Rank 1 (tiny-worker-0)")
    (tmp_path / "slow").unlink()
    run.until("StragglerRecovered: Pod tiny-worker-0")


LOGS = """
def log():
    until = time.monotonic() + 0.08
    while time.monotonic() < until:
        sum(range(1000))
"""


@pytest.mark.long
@pytest.mark.torch
def test_a_rank_that_works_alone_is_named_with_its_place(start: Start, tmp_path: Path) -> None:
    alone = TRAINS.replace("    optimizer.step()\n", "    optimizer.step()\n    if dist.get_rank() == 0: log()\n")
    run = begin(start, tmp_path, 600, alone.replace("class Model", f"{LOGS}\nclass Model", 1))
    run.until("StragglerFound: Rank 0 (tiny-master-0)")
    line = next(line for line in (run.out + run.err).splitlines() if "StragglerFound" in line)
    assert "train.py:" in line, line


@pytest.mark.long
@pytest.mark.torch
def test_equal_ranks_are_not_named(start: Start, tmp_path: Path) -> None:
    run = begin(start, tmp_path, 30)
    run.until("Training")
    assert run.wait() == 0, run.out + run.err
    assert "Straggler" not in run.out + run.err
