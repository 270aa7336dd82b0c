"""A training that saves with `checkpoint.distributed`: its state is spread over the ranks, and the same for any number.

environment: DIRECTORY (of this rank), STEPS (up to this one); torch's own variables
"""

import faulthandler
import json
import os
from pathlib import Path

import torch
import torch._dynamo  # before the process group: imported later it keeps gloo's threads until the process ends
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from pytorchjob_agent.checkpoint import distributed as checkpoint

try:
    from torch.distributed.tensor import Shard, distribute_tensor

    ends = True
except ImportError:  # torch 2.4, whose gloo may hang for ever at its end
    ends = False
    from torch.distributed._tensor import Shard, distribute_tensor

faulthandler.dump_traceback_later(200, exit=True)
dist.init_process_group("gloo")
world = dist.get_world_size()
directory = Path(os.environ["DIRECTORY"])
torch.manual_seed(7)
model = nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
state = {
    "model": model,
    "optimizer": optimizer,
    "rate": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9),
    "weights": distribute_tensor(torch.zeros(6), init_device_mesh("cpu", (world,)), [Shard(0)]),
    "seen": 0,
}
first = checkpoint.load(state, directory)
for step in range(first + 1, int(os.environ["STEPS"]) + 1):
    optimizer.zero_grad()
    model(torch.full((3, 4), float(step))).square().sum().backward()
    optimizer.step()
    state["rate"].step()
    state["weights"] += step
    state["seen"] += step
    checkpoint.save(state, step, directory)
checkpoint.wait()
result = {
    "first": first,
    "seen": state["seen"],
    "weights": state["weights"].full_tensor().tolist(),
    "model": [round(value, 4) for value in model.weight.flatten().tolist()],
    "rate": round(optimizer.param_groups[0]["lr"], 6),
    "steps": sorted(path.name for path in directory.iterdir()),
}
print(json.dumps(result), flush=True)
if not ends:
    os._exit(0)
dist.destroy_process_group()
