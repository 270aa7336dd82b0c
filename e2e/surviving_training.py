"""A training that takes its steps and shares from this project: a lost rank costs no step, no sample and no restart.

environment: STEPS, PAUSE in seconds after each step, WAITS_AT (a step at which all wait for a file GO_ON)
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pytorchjob_agent import shares, steps

GO_ON = Path("/tmp/go-on")
STEPS, PAUSE, WAITS_AT = int(os.environ["STEPS"]), float(os.environ["PAUSE"]), int(os.environ["WAITS_AT"])

dist.init_process_group("gloo")
torch.manual_seed(7)
net = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
print(f"rank={dist.get_rank()} pid={os.getpid()}", flush=True)
for step in steps(range(1, STEPS + 1), net, optimizer):
    total, count = torch.zeros(1), dist.get_world_size()
    optimizer.zero_grad()
    for share in shares(net):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1000 * step + share))
        loss = nn.functional.mse_loss(net(x), x[:, :4].sum(1, keepdim=True))
        loss.backward()
        total += loss.detach()
    optimizer.step()
    dist.all_reduce(total)
    print(f"step={step} loss={total.item():.5f} ranks={count}", flush=True)
    time.sleep(PAUSE)
    while step == WAITS_AT and not GO_ON.exists():
        time.sleep(1)
dist.barrier()
dist.destroy_process_group()
