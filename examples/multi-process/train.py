"""The smallest torchrun script: every process adds its rank, everyone checks the sum."""

import os

import torch
import torch.distributed as dist


def main() -> None:
    """Reduce once and say who took part."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else "cpu"
    total = torch.tensor([float(rank)], device=device)
    dist.all_reduce(total)
    expected = world * (world - 1) / 2
    if total.item() != expected:
        raise ValueError(f"the sum of ranks is {total.item():g}, expected {expected:g}")
    local, group = os.environ.get("LOCAL_RANK", "0"), os.environ.get("GROUP_RANK", "0")
    print(f"rank={rank} local_rank={local} node={group} world_size={world} sum={total.item():g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
