"""The training of benchmarks/saves.py: it saves to a path, and knows nothing of agents.

A step rests instead of computing, as a worker whose GPU computes. A save is made of seeded numbers, so that who loads
it knows whether it is whole.

environment: FOLDER, MEGABYTES, EVERY in seconds (0: never), EACH_RANK (1: a file of each rank), STEP_SECONDS; OTHER and
STORAGE: folders that are saved to in turns with FOLDER, in memory and as slow as network storage
"""

import os
import re
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

FOLDER, MEGABYTES, EVERY = Path(os.environ["FOLDER"]), int(os.environ["MEGABYTES"]), float(os.environ["EVERY"])
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.05"))
OTHER, STORAGE = os.environ.get("OTHER"), os.environ.get("STORAGE")
STORAGE_RATE = float(os.environ.get("STORAGE_RATE", "20e6"))
"""Bytes in a second."""
_FLOATS = 250_000  # in a megabyte


class Slow:
    """A file on storage that takes STORAGE_RATE bytes in a second."""

    def __init__(self, path: Path) -> None:
        self._file, self._began, self._bytes = path.open("wb"), time.monotonic(), 0

    def write(self, data: Any) -> int:
        """Write, and take as long as the storage."""
        self._bytes += len(memoryview(data).cast("B"))
        written = self._file.write(data)
        time.sleep(max(self._began + self._bytes / STORAGE_RATE - time.monotonic(), 0))
        return written

    def flush(self) -> None:
        """Bring it to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close it."""
        self.flush()
        self._file.close()


def numbers(step: int, of: int) -> torch.Tensor:
    """The state of a rank at a step."""
    return torch.rand(MEGABYTES * _FLOATS, generator=torch.Generator().manual_seed(step * world + of))


def file(folder: Path, step: int) -> Path:
    """Where this rank saves."""
    return folder / (f"step-{step}-rank{rank}.pt" if os.environ.get("EACH_RANK") == "1" else f"step-{step}.pt")


def save(folder: Path, step: int) -> float:
    """Save a step; the seconds that it took."""
    state, path = {"step": step, "numbers": numbers(step, rank)}, file(folder, step)
    began = time.perf_counter()
    torch.save(state, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)
    took = time.perf_counter() - began
    for old in sorted(folder.glob("step-*"), key=number)[:-2]:
        file(folder, number(old)).unlink(missing_ok=True)
    return took


def store(folder: Path, step: int) -> float:
    """Save a step to the slow storage; the seconds that it took."""
    state, began = {"step": step, "numbers": numbers(step, rank)}, time.perf_counter()
    slow = Slow(folder / "latest.pt")
    torch.save(state, slow)  # type: ignore[arg-type]
    slow.close()
    return time.perf_counter() - began


def number(path: Path) -> int:
    """The step in a name."""
    found = re.match(r"step-(\d+)", path.name)
    return int(found[1]) if found else 0


def load() -> int:
    """Load the newest save; its step, 0 without one."""
    newest = max((number(path) for path in FOLDER.glob("step-*")), default=0)
    if newest:
        state = torch.load(file(FOLDER, newest))
        assert torch.equal(state["numbers"], numbers(newest, rank if saves else 0))
    return newest


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
saves = rank == 0 or os.environ.get("EACH_RANK") == "1"
FOLDER.mkdir(exist_ok=True)
step = load()
print(f"starts from step {step}", flush=True)
due = time.monotonic() + EVERY
while True:
    flag = torch.tensor(float(rank == 0 and EVERY > 0 and time.monotonic() >= due))
    dist.all_reduce(flag)
    step += 1
    if flag:
        due = time.monotonic() + EVERY
        if saves:
            took = {"memory": save(FOLDER, step)}
            if OTHER:
                time.sleep(EVERY / 2)
                took["plain"] = save(Path(OTHER), step)
            if STORAGE:
                took["storage"] = store(Path(STORAGE), step)
            print(f"saved {step} " + " ".join(f"{name}={seconds:.6f}" for name, seconds in took.items()), flush=True)
    print(f"step {step} at {time.monotonic():.6f}", flush=True)
    time.sleep(STEP_SECONDS)
