"""Which rank keeps others waiting: real ranks with gloo, of which one does not do what the others do."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from torch.distributed import ProcessGroup

from pytorchjob_agent.contract.collectives import CollectiveFault, find_fault
from pytorchjob_agent.contract.reasons import CollectiveFaultKind
from pytorchjob_agent.stacks.recorders import Recorders
from pytorchjob_agent.workers.startup import pytorchjob_startup
from tests.ports import free_port

pytestmark = [pytest.mark.torch]
HOOKS = hasattr(ProcessGroup, "register_pre_hook")
NOT_BEGUN, DIFFERS, OTHER_ORDER = CollectiveFaultKind
WORLD = 3
BEGIN = """
import os, re, signal, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
other = dist.new_group([0, 1, 2], group_desc="other")
pair = dist.new_group([1, 2])
x = torch.ones(3)
for _ in range(4):
    dist.all_reduce(x)
"""
DDP = """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10):
    if step == 3 and rank == 2:
        time.sleep(600)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""
AGAIN = "dist.all_reduce(x); dist.broadcast(x, 0)"
DEFAULT, CALL = "0 (default_pg)", "all_reduce float32[3]"


def late(rank: int, number: int = 5, group: str = DEFAULT, call: str = CALL) -> CollectiveFault:
    return CollectiveFault(NOT_BEGUN, (rank,), group, number, call)


STUCK = {
    "asleep": (f"if rank == 1: time.sleep(600)\n{AGAIN}", late(1)),
    "asleep, rank 0": (f"if rank == 0: time.sleep(600)\n{AGAIN}", late(0)),
    "stopped": (f"if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)\n{AGAIN}", late(1)),
    "computes for ever": (f"while rank == 1: pass\n{AGAIN}", late(1)),
    "in C, with the GIL": (f"if rank == 1: re.match(r'(a+)+$', 'a' * 60 + 'b')\n{AGAIN}", late(1)),
    "left the loop early": (
        "for _ in range(5 if rank == 1 else 6): dist.all_reduce(x)\ndist.barrier()",
        CollectiveFault(DIFFERS, (1,), DEFAULT, 10, CALL, "barrier"),
    ),
    "another size": (
        "dist.all_reduce(x if rank != 2 else torch.ones(4)); time.sleep(2); dist.barrier(); dist.all_reduce(x)",
        CollectiveFault(DIFFERS, (2,), DEFAULT, 5, CALL, "all_reduce float32[4]"),
    ),
    "another collective": (
        "dist.all_reduce(x) if rank else dist.broadcast(x, 0)\ndist.barrier()",
        CollectiveFault(DIFFERS, (0,), DEFAULT, 5, CALL, "broadcast root=0 float32[3]"),
    ),
    "another root": (
        "dist.broadcast(x, 1 if rank == 1 else 0)\ndist.barrier()\ndist.all_reduce(x)",
        CollectiveFault(DIFFERS, (1,), DEFAULT, 5, "broadcast root=0 float32[3]", "broadcast root=1 float32[3]"),
    ),
    "two groups in another order": (
        "for group in ([other, None] if rank == 1 else [None, other]): dist.all_reduce(x, group=group)",
        CollectiveFault(OTHER_ORDER, (1,), DEFAULT, 5, CALL, CALL),
    ),
    "a chain over two groups": (
        "if rank == 2: time.sleep(600)\nif rank: dist.all_reduce(x, group=pair)\ndist.barrier()",
        late(2, call="barrier"),
    ),
    "in the forward pass of DistributedDataParallel": (DDP, late(2, 0, call="")),
}


OFTEN = {"asleep", "stopped", "another collective", "two groups in another order"}
"""The others differ from one of these in the call, or in the rank."""


@contextmanager
def ranks(records: Recorders, script: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run a script at all ranks, and kill it at last."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(WORLD)}
    env = os.environ | address | {"PYTHONPATH": str(Path(pytorchjob_startup.__file__).parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", BEGIN + script]
    workers = [
        subprocess.Popen(command, env=env | records.env(rank) | {"RANK": str(rank)}, stderr=subprocess.DEVNULL)
        for rank in range(WORLD)
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@pytest.mark.skipif(not HOOKS, reason="this torch has no hooks of process groups")
@pytest.mark.parametrize(
    ("script", "fault"),
    [pytest.param(*case, id=name, marks=[] if name in OFTEN else [pytest.mark.long]) for name, case in STUCK.items()],
)
def test_the_rank_at_fault_is_known_without_its_help(tmp_path: Path, script: str, fault: CollectiveFault) -> None:
    records = Recorders(tmp_path, WORLD)
    found = None
    with ranks(records, script):
        while found is None:
            time.sleep(0.2)
            known = records.positions(0, time.monotonic_ns())
            found = find_fault(known) if len({each.rank for each in known}) == WORLD else None
    unknown: dict[str, Any] = {} if fault.number else {"number": 0, "call": ""}
    assert replace(found, **unknown) == fault


def test_of_ranks_that_have_ended_it_is_known_too_unless_torch_has_no_hooks(tmp_path: Path) -> None:
    records = Recorders(tmp_path, WORLD)
    with ranks(records, "dist.barrier()\ndist.destroy_process_group()") as workers:
        assert [worker.wait(200) for worker in workers] == [0] * WORLD
    known = [(each.rank, each.begun) for each in records.positions(0, time.monotonic_ns()) if each.group == DEFAULT]
    assert known == ([(rank, 5) for rank in range(WORLD)] if HOOKS else [])
