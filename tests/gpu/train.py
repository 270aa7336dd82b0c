"""A small DDP training on the GPU with NCCL, or on the CPU with gloo; at a step it does what HOW says, on one rank.

It prints each step with its time. FAIL is rank:step:first restart count that is spared.
"""

import os
import time

import torch
import torch.distributed as dist

from pytorchjob_agent import progress

BACKEND, STEPS = os.environ["BACKEND"], int(os.environ["STEPS"])
os.environ["NCCL_HOSTID"] = f"pod-{os.environ['RANK']}"
DEVICE = torch.device("cuda", 0) if BACKEND == "nccl" else torch.device("cpu")


def misbehave(how: str) -> None:
    """Do what only this rank does."""
    if how == "sleep":
        time.sleep(10**6)
    if how == "assert":
        torch.zeros(4, device=DEVICE)[torch.tensor([9], device=DEVICE)].sum().item()
    if how == "memory":
        torch.empty(1 << 50, dtype=torch.uint8, device=DEVICE)
    raise RuntimeError(f"{how} did nothing")


def main() -> None:
    """Train."""
    dist.init_process_group(BACKEND)
    rank, restarts = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    bad, at, spared = (int(part) for part in os.environ.get("FAIL", "-1:-1:0").split(":"))
    held = torch.empty(int(float(os.environ.get("HOLD_GB", "0")) * 2**30), dtype=torch.uint8, device=DEVICE)
    held.fill_(1)
    print(f"works as {os.getpid()}", flush=True)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256).to(DEVICE))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, STEPS + 1):
        if (rank, step) == (bad, at) and restarts < spared:
            misbehave(os.environ["HOW"])
        optimizer.zero_grad()
        loss = model(torch.ones(8, 256, device=DEVICE)).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
        if not os.environ.get("QUIET"):
            progress(step, STEPS)
        now = time.time()  # noqa: TID251  the test reads it beside its own
        print(f"trains step {step} restarts {restarts} at {now}", flush=True)
        time.sleep(0.02)
    dist.destroy_process_group()


main()
