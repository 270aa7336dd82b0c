"""Learns digits with DDP. At step FAIL_AT rank 1 ends itself once, so that the workers of all pods start again.

Each start prints how long the imports took. A warm worker is forked from a process that has them already.

environment: FAIL_AT (no failure without it), STEPS
"""

import os
import sys
import time

BEGIN, WARM = time.perf_counter(), "sklearn.datasets" in sys.modules

import torch  # noqa: E402
import torch._dynamo  # noqa: E402  # before the process group, which then ends all of gloo's threads
import torch.distributed as dist  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

IMPORTS = time.perf_counter() - BEGIN
RESTART = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
FAIL_AT = int(os.environ.get("FAIL_AT", "0"))
STEPS = int(os.environ.get("STEPS", "40"))


def main() -> None:
    """Join the others, train, fail once."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    start = "warm" if WARM else "cold"
    print(f"rank={rank} restart={RESTART} start={start} imports={IMPORTS:.2f}s", flush=True)
    torch.manual_seed(7)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32)[rank::world] / 16, torch.tensor(digits.target)[rank::world]
    net = DistributedDataParallel(nn.Linear(64, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"restart={RESTART} step={step} loss={loss.item():.4f}", flush=True)
        if step == FAIL_AT and rank == 1 and RESTART == 0:
            raise RuntimeError(f"rank 1 fails at step {step}, as FAIL_AT asks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
