"""A training with DistributedDataParallel that knows nothing of this project: every rank's batches are its own.

It prints each step with the size of its group, and at the end a sum over all bits of its parameters. Rank 0 saves at
each step in SAVES. It goes on until STEPS, and slowly until the test writes a file. With REPORTS it calls `progress`.
With SHARES_STATE it takes lost ranks in between two steps, and ends soon after the test has written the file.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if os.environ.get("REPORTS"):
    from pytorchjob_agent import progress

STEPS, PAUSE = int(os.environ["STEPS"]), float(os.environ.get("PAUSE", "0.02"))
SAVES = [int(step) for step in os.environ.get("SAVES", "").split(",") if step]
_END = 1000  # more than there are ranks: rank 0 tells the others in their sum that this is the last step
CHECKPOINT, HURRY = Path(os.environ["CHECKPOINT"]), Path(os.environ["HURRY"])

dist.init_process_group("gloo")
rank, restarts = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
first = 1
if CHECKPOINT.exists():
    state = torch.load(CHECKPOINT)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"] + 1
ddp = DistributedDataParallel(model)
print(f"rank {rank} begins at step {first}, restarts {restarts}, pid {os.getpid()}", flush=True)
numbers = range(first, STEPS + 1)
if endless := bool(os.environ.get("SHARES_STATE")):
    from pytorchjob_agent import steps

    numbers = steps(numbers, ddp, optimizer)
for step in numbers:
    batch = torch.randn(16, 64, generator=torch.Generator().manual_seed(1000 * step + int(os.environ["RANK"])))
    optimizer.zero_grad()
    ddp(batch).square().mean().backward()
    optimizer.step()
    count = torch.ones(1)
    if endless and rank == 0 and HURRY.exists():
        count += _END
    dist.all_reduce(count)
    if step in SAVES and rank == 0:
        part = CHECKPOINT.with_suffix(".part")
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, part)
        part.replace(CHECKPOINT)
    print(f"step {step} of {int(count) % _END} restarts {restarts}", flush=True)
    if count >= _END:
        break
    if os.environ.get("REPORTS"):
        progress(step, STEPS)
    time.sleep(0.0 if HURRY.exists() else PAUSE)
bits = sum(int(each.detach().view(torch.int32).to(torch.int64).sum()) for each in model.parameters())
print(f"parameters {bits} of {dist.get_world_size()}", flush=True)
dist.destroy_process_group()
