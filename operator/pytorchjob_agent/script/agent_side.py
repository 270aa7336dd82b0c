"""The agent's side of the boards: makes one file for each worker of a round, reads them, writes requests.

A round has new files, so that nothing said in the last one is taken for news. It decides nothing.
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
    """How far one worker is by its own word; `age` is the seconds since its last one."""

    local_rank: int
    step: int | None = None
    total: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    age: float | None = None
    answered: int = 0  # the newest request that it has saved for
    left: int = 0  # the request that its script has ended for
    reports: bool = False  # it called progress()
    asks_checkpoint: bool = False
    asks_stop: bool = False

    @property
    def cooperative(self) -> bool:
        """Whether the worker ever called anything of ours."""
        return self.reports or self.asks_checkpoint or self.asks_stop

    def owes(self, request: int, kind: RequestKind) -> bool:
        """Whether it is worth waiting for this worker's answer, or for its end."""
        if kind is RequestKind.STOP and self.asks_stop:
            return self.left < request  # its answer is that it ends
        return self.asks_checkpoint and self.answered < request


class ProgressFiles:
    """The boards of the workers of one round."""

    def __init__(self, directory: Path, nproc: int) -> None:
        """Make `nproc` files below `directory`, which is made if it is not there."""
        directory.mkdir(parents=True, exist_ok=True)
        self._paths = [directory / f"{local_rank}.board" for local_rank in range(nproc)]
        self._maps = [_make(path) for path in self._paths]
        self._boards = [ProgressFile(memoryview(one)) for one in self._maps]
        for board in self._boards:
            board.format()
        self._requests = 0
        self._open = threading.Lock()
        """Held while the files are read, by any thread, or removed."""

    def env(self, local_rank: int) -> dict[str, str]:
        """Return what this worker's environment needs."""
        return {PROGRESS: str(self._paths[local_rank])}

    def read(self, now: float | None = None) -> tuple[WorkerProgress, ...]:
        """Return what the workers have said, by local rank; `now` is time.monotonic()'s, if it is at hand."""
        at = time.monotonic() if now is None else now
        with self._open:
            return tuple(_progress(local_rank, board, at) for local_rank, board in enumerate(self._boards))

    def request(self, kind: RequestKind, number: int | None = None, seconds: float | None = None) -> int:
        """Ask all workers for a checkpoint, or for one and the end; returns the request's number.

        The agents of one group give a request the same number, or their workers save for it more than once.
        """
        self._requests = max(self._requests, self._requests + 1 if number is None else number)
        deadline = None if seconds is None else time.monotonic() + seconds
        for board in self._boards:
            board.request(kind, self._requests, deadline)
        return self._requests

    def close(self) -> None:
        """Remove the files; workers that still run keep theirs, and nothing is read any more."""
        with self._open:
            for path, one, board in zip(self._paths, self._maps, self._boards, strict=True):
                board.release()
                one.close()
                path.unlink(missing_ok=True)
            self._paths, self._maps, self._boards = [], [], []


def _make(path: Path) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with contextlib.closing(open(fd, "r+b", buffering=0)) as file:
        file.truncate(SIZE)
        return mmap.mmap(fd, SIZE)


def _progress(local_rank: int, board: ProgressFile, now: float) -> WorkerProgress:
    said = board.read()
    return WorkerProgress(
        local_rank=local_rank,
        step=said.step,
        total=said.total,
        metrics=said.metrics,
        age=None if said.time is None else max(0.0, now - said.time),
        answered=said.answered,
        left=said.left,
        reports=said.reports,
        asks_checkpoint=said.asks_checkpoint,
        asks_stop=said.asks_stop,
    )
