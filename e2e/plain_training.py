"""A training that imports nothing of this project: it saves to a path, and loads the newest checkpoint there.

It learns the same in each run: the parameters come from a seed, the batch from the step. So a run that loses a pod has
the loss of an undisturbed one at each step, if it continues from a whole checkpoint.

With SAVE `three lines` it saves FSDP2 with three calls of this project instead.

environment: FOLDER, SAVE (`rank 0`: one file; `each rank`: a file of each rank; `DCP`: FSDP2 with
torch.distributed.checkpoint; `three lines`), STEPS, PAUSE in seconds after each step, WAITS_AT (a step at which it
waits until it is disturbed or there is a file GO_ON, which is no part of a save; 0: none)
"""

import os
import re
import time
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # before the process group: imported later it keeps gloo's threads until the process ends
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

if os.environ["SAVE"] == "three lines":
    from pytorchjob_agent.checkpoint import distributed as checkpoint

GO_ON = Path("/tmp/go-on")
FOLDER, SAVE = Path(os.environ["FOLDER"]), os.environ["SAVE"]
STEPS, PAUSE, EVERY, WAITS_AT = int(os.environ["STEPS"]), float(os.environ["PAUSE"]), 20, int(os.environ["WAITS_AT"])


def network() -> nn.Module:
    """The network, spread over the ranks as SAVE needs it."""
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    if SAVE not in ("DCP", "three lines"):
        return DistributedDataParallel(net)
    return fully_shard(net, mesh=init_device_mesh("cpu", (world,)))


def file(step: int) -> Path:
    """Where this rank saves the step."""
    return FOLDER / f"step-{step}" / f"rank{rank}.pt" if SAVE == "each rank" else FOLDER / f"step-{step}.pt"


def sharded() -> dict[str, Any]:
    """The state of FSDP2, of which each rank has a part."""
    model, adam = get_state_dict(net, optimizer)
    return {"model": model, "optimizer": adam}


def save(step: int) -> None:
    """Save the step as users do."""
    if SAVE == "three lines":
        checkpoint.save({"model": net, "optimizer": optimizer}, step)
    elif SAVE == "DCP":
        dcp.save(sharded(), checkpoint_id=FOLDER / f"step-{step}")
    elif SAVE == "each rank" or rank == 0:
        file(step).parent.mkdir(exist_ok=True)
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, file(step))


def load() -> int:
    """Load the newest checkpoint; its step, 0 without one."""
    if SAVE == "three lines":
        return checkpoint.load({"model": net, "optimizer": optimizer})
    found = [int(step[1]) for path in FOLDER.glob("step-*") if (step := re.match(r"step-(\d+)", path.name))]
    newest = max(found, default=0)
    if newest and SAVE == "DCP":
        state = sharded()
        dcp.load(state, checkpoint_id=FOLDER / f"step-{newest}")
        set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    elif newest:
        state = torch.load(file(newest))
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    return newest


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
net = network()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
first = load()
print(f"rank={rank} world={world} from={first} pid={os.getpid()}", flush=True)
for step in range(first + 1, STEPS + 1):
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step * world + rank))
    loss = nn.functional.mse_loss(net(x), x[:, :4].sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach() / world
    dist.all_reduce(mean)
    print(f"step={step} loss={mean.item():.9f}", flush=True)
    if step % EVERY == 0:
        save(step)
    time.sleep(PAUSE)
    # The fault comes before the end, and is seen before the next save, however slow the machine is.
    while first == 0 and step == WAITS_AT and not GO_ON.exists():
        time.sleep(1)
if SAVE == "three lines":
    checkpoint.wait()
dist.barrier()
dist.destroy_process_group()
