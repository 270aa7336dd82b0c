"""A training that knows nothing of this project: steps that only count, torch.save, and torch.load of the newest file.

With SAVE `calls` it is a script of three lines of this project: `load`, `save` and `wait` of checkpoint.distributed.
SAVE: `in place` and `rename` (rank 0 alone, one name), `ranks` (each rank a file of its own, with the step), `DCP` (a
sharded tensor), `cut` (in place, and rank 0 crashes in the middle of the second save). It saves at steps 40 and 80. It
ends after a restart alone: until then the test decides when to disturb it.
"""

import os
import re
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

STEPS, PAUSE, SAVES = int(os.environ["STEPS"]), 0.1, (40, 80)
FOLDER, SAVE = Path(os.environ["FOLDER"]), os.environ["SAVE"]

if SAVE == "calls":
    from pytorchjob_agent.checkpoint import distributed as checkpoint


def sharded(step: int) -> dict[str, DTensor]:
    """A tensor of which each rank has a part."""
    return {
        "weights": distribute_tensor(torch.full((1000,), float(step)), init_device_mesh("cpu", (world,)), [Shard(0)])
    }


def save(step: int) -> None:
    """Save the step as users do."""
    if SAVE == "DCP":
        dcp.save(sharded(step), checkpoint_id=FOLDER / f"step-{step}")
        return
    if SAVE == "calls":
        checkpoint.save(sharded(step), step)
        return
    state = {"step": step, "weights": torch.full((1000,), float(step))}
    if SAVE == "ranks":
        (FOLDER / f"step-{step}").mkdir(exist_ok=True)
        torch.save(state, FOLDER / f"step-{step}" / f"rank{rank}.pt")
    elif rank == 0 and SAVE == "rename":
        torch.save(state, FOLDER / "latest.pt.tmp")
        os.replace(FOLDER / "latest.pt.tmp", FOLDER / "latest.pt")
    elif rank == 0:
        torch.save(state, FOLDER / "latest.pt")
        if SAVE == "cut" and step == SAVES[1]:
            os.truncate(FOLDER / "latest.pt", 1000)
            os._exit(9)


def load() -> int:
    """Return the step of the newest checkpoint; 0 without one."""
    if SAVE == "calls":
        state = sharded(0)
        newest = checkpoint.load(state)
        assert bool((state["weights"].full_tensor() == newest).all()), "whole"
        return newest
    steps = [int(found[1]) for path in FOLDER.glob("step-*") if (found := re.search(r"step-(\d+)$", path.name))]
    last = FOLDER / f"step-{max(steps, default=0)}"
    if SAVE == "DCP" and steps:
        loaded = sharded(0)
        dcp.load(loaded, checkpoint_id=last)
        assert bool((loaded["weights"].full_tensor() == max(steps)).all()), "whole"
        return max(steps)
    file = last / f"rank{rank}.pt" if SAVE == "ranks" else FOLDER / "latest.pt"
    if not file.exists():
        return 0
    state = torch.load(file)
    assert bool((state["weights"] == float(state["step"])).all()), "whole"
    return int(state["step"])


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
FOLDER.mkdir(exist_ok=True)
step = load()
print(f"starts from step {step}", flush=True)
ends = step > 0
while step < STEPS or not ends:
    dist.all_reduce(torch.ones(1))
    step += 1
    print(f"step {step} sum {world} of {world} restarts {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True)
    if step in SAVES:
        save(step)
        print(f"saved {step}", flush=True)
    time.sleep(PAUSE)
if SAVE == "calls":
    checkpoint.wait()
print(f"finished at {step}", flush=True)
