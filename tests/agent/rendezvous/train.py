"""A training of steps that only count: an all-reduce, a line, a checkpoint on request and now and then.

From the step LINGER on it is slow until the file HURRY is there: a test that has to disturb it, or to see something of
it, comes in time on any machine.
"""

import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pytorchjob_agent import checkpoint_requested, load, progress, save, should_stop

STEPS, PAUSE = int(os.environ["STEPS"]), float(os.environ.get("PAUSE", "0.05"))
FILE = Path(os.environ["CHECKPOINT"])
LINGER, HURRY = int(os.environ.get("LINGER", STEPS)), Path(os.environ["HURRY"])


def save_step(step: int) -> None:
    """Write the step in one go, unless a later round has taken over."""
    save(FILE, lambda new: new.write_text(str(step)))


def fails(step: int, rank: int) -> bool:
    """Whether this is the moment of the fault that the test wants: rank:step:first restart count that is spared."""
    wanted_rank, wanted_step, spared = (int(part) for part in os.environ.get("FAIL", "-1:-1:1").split(":"))
    return (rank, step) == (wanted_rank, wanted_step) and int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < spared


def hang_here() -> None:
    """Do nothing for ever, outside of any collective."""
    while True:
        time.sleep(1)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
step = load(FILE, lambda path: int(path.read_text()), 0) or 0
print(f"works in round {os.environ['PYTORCHJOB_ROUND_ID']} from step {step}", flush=True)
print("role", *(os.environ[f"ROLE_{name}"] for name in ("NAME", "RANK", "WORLD_SIZE")), flush=True)
while step < STEPS:
    total = torch.ones(1)
    dist.all_reduce(total)
    step += 1
    restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
    print(f"step {step} sum {int(total)} of {world} restarts {restarts}", flush=True)
    if os.environ.get("QUIET") is None:
        progress(step, STEPS)
    if fails(step, rank):
        if os.environ.get("HOW") == "hang":
            hang_here()
        if os.environ.get("HOW") == "broken device":
            error: Any = torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered")
            error.error_code = 214
            raise error
        if os.environ.get("HOW") == "barrier":
            dist.barrier()
        if os.environ.get("HOW") == "missing":
            import no_such_module  # type: ignore[import-not-found]  # noqa: F401
        os._exit(7)  # torch may abort at the end of an interpreter whose process group is open
    if checkpoint_requested():
        if rank == 0:
            save_step(step)
        print(f"saved {step}", flush=True)
    if should_stop():
        break
    if rank == 0 and step % 10 == 0:
        save_step(step)
    time.sleep(0.01 if HURRY.exists() else PAUSE if step < LINGER else 1.0)
print(f"finished at {step}", flush=True)
