"""A training that takes its steps and shares from this project: a lost rank costs no step, no sample and no restart.

It ends when there is a file STOP in any pod. environment: PAUSE in seconds after each step
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pytorchjob_agent import shares, steps

STOP, PAUSE = Path("/tmp/stop"), float(os.environ["PAUSE"])

dist.init_process_group("gloo")
torch.manual_seed(7)
net = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
print(f"rank={dist.get_rank()} pid={os.getpid()}", flush=True)
for step in steps(range(1, 1_000_000), net, optimizer):
    total, count = torch.tensor([0.0, STOP.exists()]), dist.get_world_size()
    optimizer.zero_grad()
    for share in shares(net):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1000 * step + share))
        loss = nn.functional.mse_loss(net(x), x[:, :4].sum(1, keepdim=True))
        loss.backward()
        total[0] += loss.detach()
    optimizer.step()
    dist.all_reduce(total)
    print(f"step={step} loss={total[0]:.5f} ranks={count}", flush=True)
    if total[1]:
        break
    time.sleep(PAUSE)
dist.barrier()
dist.destroy_process_group()
