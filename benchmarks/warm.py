"""Workers of DDP from their start to their first step: forked from one that has torch loaded, against new ones."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

from benchmarks.table import Row, load, ratio, spread
from pytorchjob_agent.system.ports import listen
from pytorchjob_agent.workers import start_choice
from pytorchjob_agent.workers.fork_client import ForkServer

_WORLD = 2
_LIMIT_SECONDS = 300
_SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
model(torch.randn(8, 64)).sum().backward()
optimizer.step()
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(time.monotonic()))
os.rename(file.name, sys.argv[1])
time.sleep(600)
"""


class Worker(Protocol):
    """What both ways of starting give."""

    pid: int

    def wait(self, timeout: float | None = None) -> int: ...


Start = Callable[[list[str], dict[str, str]], Worker]


@dataclass(frozen=True)
class Round:
    """One start of all workers."""

    seconds: float
    megabytes: float


async def measure(repeat: int) -> list[Row]:
    """Both ways in turns."""
    return await asyncio.to_thread(_measure, repeat)


def _measure(repeat: int) -> list[Row]:
    before, cold, warm = load(), list[Round](), list[Round]()
    os.environ["OMP_NUM_THREADS"] = "1"  # as torchrun sets it; libraries read it when they are loaded
    with tempfile.TemporaryDirectory() as name, _server() as server:
        folder = Path(name)
        (folder / "train.py").write_text(_SCRIPT)
        _round(_cold, folder)  # fills the page cache
        _round(_forked_by(server), folder)  # waits until the server is ready
        for _ in range(repeat):
            cold.append(_round(_cold, folder))
            warm.append(_round(_forked_by(server), folder))
        (pid,) = server.pids()
        own = _megabytes(pid)
    return _rows(cold, warm, own, (f"python -m benchmarks warm --repeat {repeat}", f"{before} to {load()}"))


def _rows(cold: list[Round], warm: list[Round], own: float, notes: tuple[str, str]) -> list[Row]:
    seconds = [[round_.seconds for round_ in rounds] for rounds in (warm, cold)]
    memory = [[round_.megabytes for round_ in rounds] for rounds in (warm, cold)]
    return [
        Row(
            f"{_WORLD} workers of DDP: start to first step, warm",
            spread(seconds[0]),
            f"{spread(seconds[1])} cold",
            ratio(*seconds),
            "<= 0.5 s, a crash in all",
            *notes,
            {"ours": seconds[0], "cold": seconds[1]},
        ),
        Row(
            f"{_WORLD} workers of DDP: memory at the first step, warm, with the fork server",
            f"{median(memory[0]) + own:.0f} MB",
            f"{median(memory[1]):.0f} MB cold",
            f"**{(median(memory[0]) + own) / median(memory[1]):.2f}**",
            "",
            *notes,
            {"ours": memory[0], "fork server": [own], "cold": memory[1]},
        ),
    ]


@contextlib.contextmanager
def _server() -> Iterator[ForkServer]:
    server = ForkServer.start(start_choice.preloaded_modules({}))
    yield server
    server.close()


def _cold(command: list[str], env: dict[str, str]) -> Worker:
    return subprocess.Popen(command, env=env, start_new_session=True)


def _forked_by(server: ForkServer) -> Start:
    def start(command: list[str], env: dict[str, str]) -> Worker:
        worker = server.popen(command, env, None, None)
        if worker is None:
            raise RuntimeError("the fork server gave no worker")
        return worker

    return start


def _round(start: Start, folder: Path) -> Round:
    with listen(0) as socket:  # free it at the last moment: rank 0 opens it
        port = socket.getsockname()[1]
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(_WORLD)}
    marks = [folder / f"rank-{rank}" for rank in range(_WORLD)]
    command = [sys.executable, "-u", str(folder / "train.py")]
    began = time.monotonic()
    workers = [start([*command, str(mark)], os.environ | env | {"RANK": mark.name[5:]}) for mark in marks]
    try:
        _wait(marks)
        return Round(
            max(float(mark.read_text()) for mark in marks) - began, sum(_megabytes(worker.pid) for worker in workers)
        )
    finally:
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait()
        for mark in marks:
            mark.unlink(missing_ok=True)


def _wait(marks: list[Path]) -> None:
    for _ in range(_LIMIT_SECONDS * 50):
        if all(mark.exists() for mark in marks):
            return
        time.sleep(0.02)
    raise TimeoutError(f"no first step within {_LIMIT_SECONDS} s")


def _megabytes(pid: int) -> float:
    """Memory of one process, of what it shares its part (10^6 bytes)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6
