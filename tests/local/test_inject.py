"""Tier 1 with real processes: an unmodified torchrun, our rendezvous put beside it, a worker that crashes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.local.jobs import Run, job, role

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

Start = Callable[..., Run]

_SCRIPT = """
import os, pathlib, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank={dist.get_rank()} of {int(total)}", flush=True)
crashed = pathlib.Path(sys.argv[1])
if dist.get_rank() == 1 and not crashed.exists():
    crashed.touch()
    os._exit(3)
dist.barrier()
"""


def injected(name: str, folder: Path, script: str) -> dict[str, Any]:
    """A job of two workers that run this script by an unmodified torchrun; its argument is a path for a marker."""
    path = folder / "train.py"
    path.write_text(script)
    made = job(name, Worker=role(["torchrun", str(path), str(folder / "marker")], 2, "OnFailure"))
    made["spec"] |= {"agent": {"inject": True}, "nprocPerNode": "1"}
    return made


def test_torchrun_itself_recovers_from_a_crash_by_our_rendezvous(start: Start, tmp_path: Path) -> None:
    run = start(injected("tier-one", tmp_path, _SCRIPT))
    run.until("Round 1.1 starts with 2 members")
    run.until("WorkerFailed: rank 1 (tier-one-worker-1)")
    run.until("Round 1.2 starts with 2 members")
    assert run.wait() == 0, run.out + run.err
    assert [run.out.count(f"rank={rank} of 2") for rank in (0, 1)] == [2, 2]


_EARLY = """
import os, pathlib, sys, time
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
failed = pathlib.Path(sys.argv[1])
print(f"rank={dist.get_rank()}", flush=True)
if dist.get_rank() == 0 and not failed.exists():
    failed.touch()
    time.sleep(3)
    os._exit(3)
"""


def test_a_torchrun_whose_workers_are_done_starts_again_in_place_when_another_member_fails(
    start: Start, tmp_path: Path
) -> None:
    run = start(injected("early", tmp_path, _EARLY))
    run.until("WorkerFailed: rank 0 (early-worker-0)")
    run.until("Round 1.2 starts with 2 members")
    assert run.wait() == 0, run.out + run.err
    assert "worker-1: exited" not in run.err
    assert [run.out.count(f"rank={rank}\n") for rank in (0, 1)] == [2, 2]


_TOGETHER = """
import atexit, os, pathlib, sys, time

rank, folder = int(os.environ["RANK"]), pathlib.Path(sys.argv[1]).parent
(folder / f"new-{rank}").write_text(str(os.getpid()))
(folder / f"new-{rank}").rename(folder / f"ready-{rank}")
while not all((folder / f"ready-{other}").exists() for other in range(2)):
    time.sleep(0.001)
time.sleep(0.05 * rank)

def wait():  # its error comes first, and its end last: no torchrun is told to stop before both have failed
    other = pathlib.Path("/proc", (folder / "ready-1").read_text(), "stat")
    while other.exists() and other.read_text().rpartition(")")[2].split()[0] not in "ZX":
        time.sleep(0.001)

if rank == 0:
    atexit.register(wait)
    raise ConnectionResetError("a peer is gone")
FAILS
"""


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        pytest.param('raise ValueError("no data")', "exited with code 1: ValueError: no data", id="it raises"),
        pytest.param("os.kill(os.getpid(), 9)", "exited with code 137: killed by SIGKILL", id="it is killed"),
        pytest.param("os._exit(3)", "exited with code 3: exited with 3", id="it ends itself"),
    ],
)
def test_the_rank_that_failed_is_named_and_not_the_one_that_lost_it(
    start: Start, tmp_path: Path, fails: str, says: str
) -> None:
    made = injected("culprit", tmp_path, _TOGETHER.replace("FAILS", fails))
    run = start(made, "--max-restarts", "0")
    assert run.wait() != 0
    assert f"rank 1 (culprit-worker-1) {says}" in run.err, run.out + run.err
