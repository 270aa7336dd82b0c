"""An ordinary script: rank 0 saves to a path, and every rank loads what it finds there when it starts.

It imports nothing of this project. CHECKPOINT_DIR: where it saves. STEPS: how many there are. STEP_SECONDS: the pause
after each step, so that there is time to watch.
"""

import os
import time
from pathlib import Path

import torch
import torch._dynamo  # before the process group: imported later, by DDP, it keeps gloo's threads until the process ends
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, PAUSE, EVERY = int(os.environ.get("STEPS", "60")), float(os.environ.get("STEP_SECONDS", "0.1")), 20
FILE = Path(os.environ["CHECKPOINT_DIR"]) / "latest.pt"


def main() -> None:
    """Fit a line, from the last checkpoint on."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    FILE.parent.mkdir(parents=True, exist_ok=True)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = 0
    if FILE.exists():
        state = torch.load(FILE)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    print(f"rank={rank} world_size={world} from_step={first}", flush=True)
    for step in range(first + 1, STEPS + 1):
        inputs = torch.randn(16, 3)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.3g}", flush=True)
        if rank == 0 and step % EVERY == 0:
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, FILE.with_suffix(".tmp"))
            FILE.with_suffix(".tmp").replace(FILE)
        time.sleep(PAUSE)
    dist.barrier()
    if rank == 0:
        FILE.unlink(missing_ok=True)  # another run of the example starts again
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
