"""A training whose step is compiled. It prints what the compiler found in its cache, and trains until it is stopped.

KERNEL=1 needs a C++ compiler: the step becomes a library. Otherwise the step is one call of torch's own.
"""

import os
import time

import torch
import torch.distributed as dist
from torch._dynamo.utils import counters

KERNEL = bool(os.environ.get("KERNEL"))


@torch.compile
def compiled(x: torch.Tensor) -> torch.Tensor:
    """One step."""
    return (x.sin() + x.cos()).sum() if KERNEL else x @ x


dist.init_process_group("gloo")
started = time.perf_counter()
compiled(torch.ones(8, 8))
found = {name: counters["inductor"][f"fxgraph_cache_{name}"] for name in ("hit", "miss")}
print(f"compiled after {time.perf_counter() - started:.2f} s: {found['hit']} hits, {found['miss']} misses", flush=True)
step = 0
while step < int(os.environ["STEPS"]):
    dist.all_reduce(torch.ones(1))
    step += 1
    if step % 10 == 0:
        print(f"step {step} sum 2 of 2 restarts {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True)
    time.sleep(0.1)
