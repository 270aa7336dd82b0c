"""A training with DistributedDataParallel that prints how long each step took, for `benchmarks/survivors`.

It knows nothing of this project. With REPORTS it calls `progress`: a job that fails often and reports no steps ends.
With POLLS it saves and ends on request, so a lost rank comes back at once. With SHARES_STATE it takes its steps from
`steps`, so a lost rank comes back between two of them. Rank 0 saves when the benchmark writes a file, and all end when
it writes another one. A rank that finds a third one takes all memory.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FOLDER, WIDTH, DEPTH = Path(os.environ["FOLDER"]), int(os.environ["WIDTH"]), int(os.environ["DEPTH"])
BATCH, STEPS = int(os.environ["BATCH"]), int(os.environ["STEPS"])
SAVE, STOP, EAT, SAVED = FOLDER / "save", FOLDER / "stop", FOLDER / "eat", FOLDER / "saved.pt"

if REPORTS := bool(os.environ.get("REPORTS")):
    from pytorchjob_agent import progress
if POLLS := bool(os.environ.get("POLLS")):
    from pytorchjob_agent import checkpoint_requested, should_stop

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
step = 0
if SAVED.exists():
    state = torch.load(SAVED)
    model.load_state_dict(state["model"])
    step = state["step"]
ddp = DistributedDataParallel(model)
print(f"rank {rank} begins at step {step + 1}, pid {os.getpid()}", flush=True)
numbers = range(step + 1, STEPS + 1)
if os.environ.get("SHARES_STATE"):
    from pytorchjob_agent import steps

    numbers = steps(numbers, ddp, optimizer)
last = time.perf_counter()
for step in numbers:
    if STOP.exists():
        break
    batch = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1000 * step + rank))
    optimizer.zero_grad()
    ddp(batch).square().mean().backward()
    optimizer.step()
    now = time.perf_counter()
    print(f"step {step} of {dist.get_world_size()} took {1000 * (now - last):.3f} ms at {time.time():.4f}", flush=True)
    if REPORTS:
        progress(step)
    if EAT.exists():
        EAT.unlink()
        eaten = []
        while True:  # until the kernel kills this process
            eaten.append(bytearray(os.urandom(1 << 20)) * 64)
    asked = POLLS and checkpoint_requested()
    if rank == 0 and (asked or SAVE.exists()):
        SAVE.unlink(missing_ok=True)
        torch.save({"step": step, "model": model.state_dict()}, SAVED.with_suffix(".part"))
        SAVED.with_suffix(".part").replace(SAVED)
    if POLLS and should_stop():
        dist.destroy_process_group()
        raise SystemExit
    last = time.perf_counter()
os._exit(0)
