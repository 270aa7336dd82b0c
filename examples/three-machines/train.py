"""Fits a line with DDP. Started by torchrun, by hand on each machine or by a PyTorchJob: it does not know which."""

import argparse
import os

import torch
import torch._dynamo  # before the process group: imported later, by DDP, it keeps gloo's threads until the process ends
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 24  # 1, 2, 3, 4, 6, 8 ... processes get equal shares


def main() -> None:
    """Train, and show what each process has learned: the same."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    steps = parser.parse_args().steps
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    net = DistributedDataParallel(nn.Linear(1, 1).to(device))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        x = torch.randn(BATCH, 1)[rank::world].to(device)  # one seed: each process takes its part of the same batch
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), 3 * x + 1).backward()
        optimizer.step()
    slope, offset = (each.item() for each in net.parameters())
    machine = os.environ["GROUP_RANK"]
    print(f"rank={rank} world_size={world} machine={machine} slope={slope:.4f} offset={offset:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
