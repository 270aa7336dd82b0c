"""The agent's side of the progress files: makes one for each worker of a round, reads them, writes requests.

Each round has new files, so that no report of an earlier round counts as new. `rendezvous/round_workers` uses it.

The way of a checkpoint request: the coordinator sends `checkpoint` (the operator's `rounds/running.plan_restart`); the
agent's inbox keeps it; `rendezvous/loop._report_progress` passes it on, and `ProgressFiles.request` writes it.
In the script, `checkpoint_requested` (`script/api`) reads it, and the next call after the save is the answer. The
agent's heartbeat carries the answered number back, and `rounds/running.advance` restarts once all members have
answered, or at the deadline. The agent answers at once for a worker that has not polled in this round. A request after
which training continues (`rounds/threats`) goes the same way, and is answered by workers that have saved.
"""

import contextlib
import mmap
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytorchjob_agent.script.progress_file import PROGRESS, SIZE, ProgressFile, RequestKind


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """The progress that one worker reported; `age` is the number of seconds since its last report."""

    local_rank: int
    step: int | None = None
    total: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    age: float | None = None
    first_step: int | None = None  # the first report of this round; steps only grew since
    first_age: float | None = None
    answered: int = 0  # the newest request that it has saved for
    left: int = 0  # the request that its script has ended for
    reports: bool = False  # it called progress()
    asks_checkpoint: bool = False
    asks_stop: bool = False

    @property
    def cooperative(self) -> bool:
        """Return whether the worker has called any function of `api`."""
        return self.reports or self.asks_checkpoint or self.asks_stop

    def owes(self, request: int, kind: RequestKind) -> bool:
        """Return whether this worker still has to answer the request, or to end for it."""
        if kind is RequestKind.STOP and self.asks_stop:
            return self.left < request  # its answer is that it ends
        return self.asks_checkpoint and self.answered < request


class ProgressFiles:
    """The progress files of one round's workers."""

    def __init__(self, directory: Path, nproc: int) -> None:
        """Make `nproc` files below `directory`, which is created if necessary."""
        directory.mkdir(parents=True, exist_ok=True)
        self._paths = [directory / f"{local_rank}.board" for local_rank in range(nproc)]
        self._maps = [_make(path) for path in self._paths]
        self._files = [ProgressFile(memoryview(mapped)) for mapped in self._maps]
        for file in self._files:
            file.format()
        self._requests = 0
        self._open = threading.Lock()
        """Held while the files are read, by any thread, or removed."""

    def env(self, local_rank: int) -> dict[str, str]:
        """Return the variables that this worker needs."""
        return {PROGRESS: str(self._paths[local_rank])}

    def read(self, now: float | None = None) -> tuple[WorkerProgress, ...]:
        """Return the workers' progress by local rank; `now` is the value of time.monotonic(), if the caller has it."""
        at = time.monotonic() if now is None else now
        with self._open:
            return tuple(_progress(local_rank, file, at) for local_rank, file in enumerate(self._files))

    def read_bytes(self, at: int, size: int) -> tuple[bytes, ...]:
        """Return a part of each file by local rank; see ProgressFile.bytes_at."""
        with self._open:
            return tuple(file.bytes_at(at, size) for file in self._files)

    def request(self, kind: RequestKind, number: int | None = None, seconds: float | None = None) -> int:
        """Request a checkpoint, or a checkpoint and the end, from all workers; return the request's number.

        All agents of a round must use the same number for a request, or their workers save for it more than once.
        """
        self._requests = max(self._requests, self._requests + 1 if number is None else number)
        deadline = None if seconds is None else time.monotonic() + seconds
        for file in self._files:
            file.request(kind, self._requests, deadline)
        return self._requests

    def close(self) -> None:
        """Remove the files; running workers keep theirs mapped, but the agent reads nothing any more."""
        with self._open:
            for path, mapped, file in zip(self._paths, self._maps, self._files, strict=True):
                file.release()
                mapped.close()
                path.unlink(missing_ok=True)
            self._paths, self._maps, self._files = [], [], []


def _make(path: Path) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with contextlib.closing(open(fd, "r+b", buffering=0)) as file:
        file.truncate(SIZE)
        return mmap.mmap(fd, SIZE)


def _progress(local_rank: int, file: ProgressFile, now: float) -> WorkerProgress:
    record = file.read()
    return WorkerProgress(
        local_rank=local_rank,
        step=record.step,
        total=record.total,
        metrics=record.metrics,
        age=None if record.time is None else max(0.0, now - record.time),
        first_step=record.first_step,
        first_age=None if record.first_time is None else max(0.0, now - record.first_time),
        answered=record.answered,
        left=record.left,
        reports=record.reports,
        asks_checkpoint=record.asks_checkpoint,
        asks_stop=record.asks_stop,
    )
