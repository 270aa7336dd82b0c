"""Trains a network that FSDP2 shards over all processes, and saves it while it goes on.

Each process holds and saves only its part of the parameters and of Adam's state. A checkpoint can be loaded by any
number of processes: torch reshards it. So a job goes on after a loss, and after a change of its size, at the step of
the last checkpoint.

environment: CHECKPOINT_DIR (no checkpoints without it), STEPS, STEP_SECONDS
"""

import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pytorchjob_agent import checkpoint_requested, progress, should_stop
from pytorchjob_agent.checkpoint import distributed as checkpoint

STEPS = int(os.environ.get("STEPS", "40"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.1"))
SAVE_EVERY = 5
BATCH = 24  # 1, 2, 3, 4, 6, 8 ... processes get equal shares: each number of them learns the same
WIDTH = 32


class Block(nn.Module):
    """A layer of the network: the unit that FSDP2 gathers before it is used, and drops after it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.layers(self.norm(x))
        return out


def sharded(device: torch.device) -> nn.Module:
    """Return the network, each of whose parameters is spread over all processes."""
    torch.manual_seed(7)  # the same parameters in every process, before each keeps its part of them
    net = nn.Sequential(*[Block() for _ in range(3)], nn.Linear(WIDTH, 1)).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for part in net:
        fully_shard(part, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def batch(step: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return this process' share of the batch of a step, which is the same in every run."""
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))
    mine = x[dist.get_rank() :: dist.get_world_size()].to(device)
    return mine, mine[:, :4].sum(1, keepdim=True)


def train(folder: str | None, device: torch.device) -> bool:
    """Go on from the newest checkpoint; returns whether all steps are done: False where the group ends before."""
    net = sharded(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    state = {"model": net, "optimizer": optimizer}
    first = checkpoint.load(state, folder) if folder else 0
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank={rank} world_size={world} from_step={first} pid={os.getpid()}", flush=True)
    for step in range(first + 1, STEPS + 1):
        x, y = batch(step, device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach() / world
        dist.all_reduce(mean)
        progress(step, STEPS, loss=mean.item())
        if rank == 0:
            print(f"step={step} members={world} loss={mean.item():.6f}", flush=True)
        wanted = checkpoint_requested()  # all ranks ask, and all get the same answer
        if folder and (wanted or step % SAVE_EVERY == 0):
            checkpoint.save(state, step, folder, keep=1)
        if wanted:
            checkpoint.wait()  # else the training goes on while a thread writes
        if should_stop():
            return False
        time.sleep(STEP_SECONDS)
    return True


def main() -> None:
    """Join the others and train."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    folder = os.environ.get("CHECKPOINT_DIR")
    rank = dist.get_rank()
    try:
        done = train(folder, device)
        checkpoint.wait()
    finally:
        dist.destroy_process_group()
    print(f"rank={rank} done steps={STEPS}" if done else f"rank={rank} stopped, as asked", flush=True)


if __name__ == "__main__":
    main()
