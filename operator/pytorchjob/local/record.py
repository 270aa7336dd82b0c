"""What other commands can see of a run: its job, pods and events as objects, and the log of each container.

A run has a folder for its record, which only this user may read. The runner holds a lock in it, so that a reader knows
whether the run is over, however it has ended. The records of the newest runs that are over are kept.
"""

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:  # who reads a record does without the model, whose import takes long
    from pytorchjob_operator.model import PyTorchJob

Object = dict[str, Any]
_STATE, _LOCK = "state.json", "lock"
_KEPT = 5
"""Records of runs that are over."""
_MOST_BYTES = 64 << 20
"""Of one log."""
_MOST_EVENTS = 500
_PAUSE = 1.0
"""Seconds between two records of a state that changes."""
_LOG = re.compile(r"(.+-\d+)\.(\d+)\.log")


def folder() -> Path:
    """Return where this user's records are: below XDG_STATE_HOME, or ~/.local/state."""
    given = os.environ.get("XDG_STATE_HOME", "")
    return Path(given if os.path.isabs(given) else os.path.expanduser("~/.local/state"), "pytorchjob", "runs")


class Record:
    """The record of one run. A machine on which nothing can be recorded still runs jobs: then it does nothing."""

    def __init__(self, job: "PyTorchJob") -> None:
        self._path: Path | None = folder() / f"{job.metadata.name}.{os.getpid()}"
        self._lock: IO[bytes] | None = None
        self._logs: dict[str, IO[bytes]] = {}
        self._events: list[Object] = []
        self._shown, self._due, self._stamp, self._created = "", 0.0, 0, _text(datetime.now(UTC))
        with self._or_without():
            _forget(self._path.parent)
            shutil.rmtree(self._path, ignore_errors=True)
            self._path.mkdir(parents=True, mode=0o700)
            self._lock = (self._path / _LOCK).open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def begin(self, uid: str, restarts: int) -> str:
        """Begin the log of a container; returns the present time as the API writes it."""
        self._end_log(uid)
        if self._path is not None:
            with self._or_without():
                self._logs[uid] = (self._path / f"{uid}.{restarts}.log").open("wb", buffering=0)
        return _text(datetime.now(UTC))

    def write(self, uid: str, lines: Sequence[str]) -> None:
        """Add lines of a container to its log, each with its time as a node writes it."""
        log = self._logs.get(uid)
        if log is None or not lines:
            return
        self._stamp = max(self._stamp + 1, time.time_ns())
        stamped = "".join(f"{_nanoseconds(self._stamp + at)} {line}\n" for at, line in enumerate(lines))
        self._stamp += len(lines)
        with self._or_without():
            log.write(stamped.encode(errors="replace"))
            if log.tell() > _MOST_BYTES:
                log.write(f"{_nanoseconds(self._stamp)} [the record of this log is full]\n".encode())
                self._end_log(uid)

    def event(self, job: "PyTorchJob", reason: str, message: str, *, warning: bool) -> None:
        """Add an event of the job."""
        about = {"kind": job.kind, "name": job.metadata.name, "namespace": job.metadata.namespace}
        kind, at = "Warning" if warning else "Normal", _text(datetime.now(UTC))
        event = {"type": kind, "reason": reason, "message": message, "lastTimestamp": at, "involvedObject": about}
        self._events = [*self._events[-_MOST_EVENTS:], {"metadata": {"name": job.metadata.name}, **event}]

    def keep(
        self, job: Callable[[], Object], pods: Callable[[], Sequence[Object]], now: float, *, final: bool = False
    ) -> None:
        """Store the objects if they have changed, at most once a second; `now` in monotonic seconds."""
        if self._path is None or (now < self._due and not final):
            return
        self._due = now + _PAUSE
        shown = job()
        shown["metadata"]["creationTimestamp"] = self._created
        text = json.dumps({"job": shown, "pods": pods(), "events": self._events})
        if text == self._shown:
            return
        self._shown = text
        with self._or_without():
            new = self._path / f".{_STATE}"
            new.write_text(text)
            new.replace(self._path / _STATE)

    def close(self) -> None:
        """End the record: the run is over."""
        for uid in list(self._logs):
            self._end_log(uid)
        if self._lock is not None:
            self._lock.close()

    def _end_log(self, uid: str) -> None:
        if log := self._logs.pop(uid, None):
            log.close()

    @contextmanager
    def _or_without(self) -> Iterator[None]:
        """Record nothing more after an error: the disk is full, or nothing can be written there."""
        try:
            yield
        except OSError:
            self._path = None
            self.close()


class Recorded:
    """The record of a run, as another process reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def state(self) -> Object:
        """Return the job, its pods and events; raises OSError or ValueError if there is none, or no more."""
        found: Object = json.loads((self.path / _STATE).read_text())
        return found

    def is_over(self) -> bool:
        """Whether no process runs the job any more."""
        try:
            with (self.path / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def logs(self, pod: str) -> list[Path]:
        """Return the logs of a pod's containers, the oldest first; those of an earlier pod of this name too."""
        found = ((match, path) for path in self.path.glob("*.log") if (match := _LOG.fullmatch(path.name)))
        ordered = [
            (int(match[1].rpartition("-")[2]), int(match[2]), path)
            for match, path in found
            if match[1].rpartition("-")[0] == pod
        ]
        return [path for _, _, path in sorted(ordered)]


def runs() -> list[Recorded]:
    """Return the records of this machine: those of running jobs first, then the newest first."""
    with suppress(OSError):
        found = [(path.stat().st_mtime, Recorded(path)) for path in folder().iterdir() if (path / _STATE).exists()]
        return [each for *_, each in sorted(found, key=lambda each: (each[1].is_over(), -each[0]))]
    return []


def _forget(root: Path) -> None:
    """Remove the records of old runs."""
    for old in [each for each in _all(root) if each.is_over()][_KEPT - 1 :]:
        shutil.rmtree(old.path, ignore_errors=True)


def _all(root: Path) -> Iterator[Recorded]:
    with suppress(OSError):
        for path in sorted(root.iterdir(), key=lambda each: -each.stat().st_mtime):
            yield Recorded(path)


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _nanoseconds(moment: int) -> str:
    whole = datetime.fromtimestamp(moment // 10**9, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{moment % 10**9:09d}Z"
