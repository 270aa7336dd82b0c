"""Fits a small model with DDP while members come and go: after each change it goes on from the last checkpoint.

It tells how far it is, saves when it is asked to, and stops when its group is about to end. So a pod that is drained
and a job that is scaled cost no step; after the loss of a pod at most SAVE_EVERY steps are done again.

environment: CHECKPOINT_DIR (no checkpoints without it), STEPS, STEP_SECONDS
"""

import gc
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # before the process group: imported later, by DDP, it keeps gloo's threads until the process ends
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pytorchjob_agent import checkpoint_requested, progress, should_stop

STEPS = int(os.environ.get("STEPS", "40"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.1"))
SAVE_EVERY = 10
BATCH = 12  # 1, 2, 3, 4 ... processes get equal shares: each number of them learns the same
FACTORS = torch.tensor([[2.0], [-1.0], [0.5]])  # what is to be found


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Return this process' share of the batch of a step, which is the same in every run."""
    x = torch.randn(BATCH, len(FACTORS), generator=torch.Generator().manual_seed(step))
    mine = x[dist.get_rank() :: dist.get_world_size()]
    return mine, mine @ FACTORS


def load(path: Path | None) -> dict[str, Any]:
    """Return the furthest checkpoint that any pod has: a survivor's where a pod was lost, rank 0's too."""
    found = torch.load(path, weights_only=True) if path is not None and path.exists() else {"step": 0}
    steps: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(steps, found["step"])
    best = [found]
    dist.broadcast_object_list(best, src=steps.index(max(steps)))
    return best[0]


def save(path: Path | None, state: dict[str, Any]) -> None:
    """Write one copy in each pod, in one move: never half a checkpoint."""
    if path is None or os.environ.get("LOCAL_RANK", "0") != "0":
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    torch.save(state, part)
    part.replace(path)


def train(path: Path | None) -> bool:
    """Go on from the checkpoint; returns whether all steps are done: False where the group ends before."""
    model = nn.Linear(len(FACTORS), 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    state = load(path)
    if state["step"]:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank={rank} world_size={world} from_step={state['step']}", flush=True)
    net = DistributedDataParallel(model)
    for step in range(state["step"] + 1, STEPS + 1):
        x, y = batch(step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        progress(step, STEPS, loss=loss.item())
        if rank == 0:
            print(f"step={step} members={world} loss={loss.item():.2e}", flush=True)
        if checkpoint_requested() or step % SAVE_EVERY == 0:  # all ranks ask, and all get the same answer
            save(path, {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
        if should_stop():
            return False
        time.sleep(STEP_SECONDS)
    return True


def main() -> None:
    """Join the others and train."""
    dist.init_process_group("gloo")
    folder = os.environ.get("CHECKPOINT_DIR")
    path = Path(folder) / "elastic.pt" if folder else None
    rank = dist.get_rank()
    try:
        done = train(path)
        dist.barrier()  # nobody removes what another still reads
    finally:
        gc.collect()  # DDP leaves cycles that hold the process group
        dist.destroy_process_group()
    if done and path is not None:
        path.unlink(missing_ok=True)  # the next run begins afresh
    print(f"rank={rank} done steps={STEPS}" if done else f"rank={rank} stopped, as asked", flush=True)


if __name__ == "__main__":
    main()
