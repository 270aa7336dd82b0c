"""Functions that the workers of standalone runs call."""

import os
import time
from typing import Any


def meet(word: str) -> tuple[str, float]:
    """Sum ones over all ranks."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    return word, total.item()


def fail(rank: str) -> None:
    """Raise on one rank; the others wait for it."""
    if os.environ["RANK"] == rank:
        raise ValueError("no such luck")
    time.sleep(600)


def seen(*names: str) -> dict[str, Any]:
    """Return what this worker sees of the environment."""
    return {name: os.environ.get(name) for name in names}
