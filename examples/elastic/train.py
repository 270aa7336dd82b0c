"""Counts steps together while members come and go: after each change it goes on from the checkpoint.

environment: CHECKPOINT_DIR (must be shared by the replicas to survive the loss of a pod), STEPS, STEP_SECONDS
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = int(os.environ.get("STEPS", "20"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.1"))


def load(path: Path | None) -> int:
    """Return the step to go on with: the one that rank 0 finds, told to all, so that all agree."""
    step = torch.zeros(1, dtype=torch.int64)
    if dist.get_rank() == 0 and path is not None and path.exists():
        step[0] = int(path.read_text())
    dist.broadcast(step, src=0)
    return int(step)


def save(path: Path | None, step: int) -> None:
    """Write the step in one move: never half a checkpoint."""
    if path is None or dist.get_rank() != 0:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(str(step))
    part.replace(path)


def main() -> None:
    """Reduce once per step until the last."""
    dist.init_process_group("gloo")
    folder = os.environ.get("CHECKPOINT_DIR")
    path = Path(folder) / "step.txt" if folder else None
    rank, world = dist.get_rank(), dist.get_world_size()
    first = load(path)
    print(f"rank={rank} world_size={world} from_step={first}", flush=True)
    for step in range(first, STEPS):
        members = torch.ones(1)
        dist.all_reduce(members)
        if members.item() != world:
            raise ValueError(f"{members.item():g} members answered, expected {world}")
        save(path, step + 1)
        if rank == 0:
            print(f"step={step + 1} members={members.item():g}", flush=True)
        time.sleep(STEP_SECONDS)
    if rank == 0 and path is not None:
        path.unlink(missing_ok=True)  # all is done: the next run begins afresh
    print(f"rank={rank} done steps={STEPS}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
