"""Saves of 256 MB with torch.distributed.checkpoint, in turns: how long each call blocks one training process.

Prints a line for each turn: the three lines of docs/checkpoints.md, torch's own asynchronous save, torch's plain save.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as torchs

from pytorchjob_agent.checkpoint import distributed as ours

STATE = {str(number): torch.randn(1 << 22) for number in range(16)}
Save = Callable[[Path, int], "Future[object] | None"]


def three_lines(folder: Path, step: int) -> None:
    """The call of docs/checkpoints.md."""
    ours.save(STATE, step, folder)


def asynchronous(folder: Path, step: int) -> "Future[object]":
    """The same with torch's own writer."""
    started: Future[object] = torchs.async_save(STATE, checkpoint_id=folder / str(step))
    return started


def plain(folder: Path, step: int) -> None:
    """What most scripts call."""
    torchs.save(STATE, checkpoint_id=folder / str(step))


def blocked(save: Save, step: int) -> float:
    """Seconds for which a save blocks its caller; it is whole when this returns."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        began = time.monotonic()
        pending = save(folder, step)
        seconds = time.monotonic() - began
        ours.wait()
        if pending is not None:
            pending.result()
        return seconds
    finally:
        shutil.rmtree(folder)


def main(repeat: int) -> None:
    """The first turn allocates what stays, and is left out."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for turn in range(repeat + 1):
        found = [blocked(save, turn) for save in (three_lines, asynchronous, plain)]
        if turn:
            print(*(f"{seconds:.4f}" for seconds in found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
