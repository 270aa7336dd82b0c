"""Learns scikit-learn's handwritten digits with DDP: sharded by rank, checkpointed, resumed.

Runs as one process (`python train.py`), as one process per pod with the environment of a PyTorchJob, below
torchrun and below pytorchjob-agent. Every number of processes that divides a batch sees the same batches and so
learns the same: a batch is drawn from one seed and then cut into equal shares.

environment: CHECKPOINT_DIR (no checkpoints without it), EPOCHS, SEED
"""

import gc
import os
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # before the process group: imported later, by DDP, it keeps gloo's threads until the process ends
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 48  # 1, 2, 3, 4, 6, 8 ... processes get equal shares
EPOCHS = int(os.environ.get("EPOCHS", "20"))
SEED = int(os.environ.get("SEED", "7"))


def data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the pixels and labels of 1500 digits to learn from and 297 to be judged by."""
    bunch = load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(SEED))
    x = torch.tensor(bunch.data, dtype=torch.float32)[order] / 16
    y = torch.tensor(bunch.target)[order]
    return x[:1500], y[:1500], x[1500:], y[1500:]


def model() -> nn.Module:
    """Return a small network, the same in every process."""
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def save(path: Path, state: dict[str, object]) -> None:
    """Write the checkpoint so that a crash leaves either the old one or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def resume(path: Path | None, net: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the epoch to begin with; rank 0 reads and tells the others, so that only it needs the folder."""
    found: list[dict[str, Any] | None] = [None]
    if dist.get_rank() == 0 and path is not None and path.exists():
        found = [torch.load(path, map_location="cpu", weights_only=True)]
        print(f"resumed from {path}", flush=True)
    dist.broadcast_object_list(found, src=0)
    if found[0] is None:
        return 0
    net.load_state_dict(found[0]["model"])
    optimizer.load_state_dict(found[0]["optimizer"])
    return int(found[0]["epoch"]) + 1


def train_epoch(net: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, epoch: int) -> float:
    """Learn once from every whole batch; returns this process' mean loss."""
    rank, world = dist.get_rank(), dist.get_world_size()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(SEED + epoch)).to(x.device)
    losses = []
    for start in range(0, len(x) - BATCH + 1, BATCH):
        mine = order[start : start + BATCH][rank::world]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[mine]), y[mine])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of digits read right; every process judges its own part of them."""
    rank, world = dist.get_rank(), dist.get_world_size()
    with torch.no_grad():
        right = (net(x[rank::world]).argmax(1) == y[rank::world]).sum()
    dist.all_reduce(right)
    return float(right) / len(y)


def run(device: torch.device) -> None:
    """Train from the last checkpoint, if there is one, to the last epoch."""
    x, y, test_x, test_y = (part.to(device) for part in data())
    net = DistributedDataParallel(model().to(device))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    folder = os.environ.get("CHECKPOINT_DIR")
    path = Path(folder) / "digits.pt" if folder else None
    first = resume(path, net, optimizer)
    for epoch in range(first, EPOCHS):
        loss = train_epoch(net, optimizer, x, y, epoch)
        if dist.get_rank() == 0:
            print(f"epoch={epoch} loss={loss:.4f}", flush=True)
            if path:
                save(path, {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch})
    score = accuracy(net.module, test_x, test_y)
    if dist.get_rank() == 0:
        print(f"world_size={dist.get_world_size()} accuracy={score:.4f}", flush=True)


def main() -> None:
    """Join the others, if there are any, and train."""
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
        os.environ.setdefault(name, value)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        run(device)
    finally:
        # DDP leaves reference cycles that hold the process group. gloo's threads would live until the end of Python,
        # and now and then abort a job that had succeeded.
        gc.collect()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
