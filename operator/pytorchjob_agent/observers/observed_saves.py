"""The saves and loads that the scripts of one round's workers make by themselves, as the workers measure them.

`workers/startup/pytorchjob_saves` counts them in each worker. The ranks of a group wait for each other, so the rank
with the longest saves stands for all.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from pytorchjob_agent.script.agent_side import ProgressFiles
from pytorchjob_agent.script.progress_file import PROGRESS, SAVES_AT, STEP_AT
from pytorchjob_agent.workers.startup.pytorchjob_saves import SAVES

_FORMAT = struct.Struct("=qqdqdq")


@dataclass(frozen=True, slots=True)
class WorkerSaves:
    """What one worker has measured since its start."""

    saves: int = 0
    seconds: float = 0.0
    step: int | None = None
    """The step that it had reported at its last save."""
    load_seconds: float = 0.0
    """Seconds of its loads before its first step."""
    elsewhere: bool = False
    """True if it saved in a way that is not measured: in memory, in another thread or in a child."""

    @classmethod
    def read(cls, words: bytes) -> Self | None:
        """Read the worker's words; None if it does not measure, or has damaged them."""
        if len(words) != _FORMAT.size:
            return None
        pid, saves, seconds, step, load_seconds, elsewhere = _FORMAT.unpack(words)
        if pid <= 0 or saves < 0 or not (seconds >= 0 and load_seconds >= 0):
            return None
        return cls(saves, seconds, step if saves and step >= 0 else None, load_seconds, bool(elsewhere))


class ObservedSaves:
    """The saves of one round's workers."""

    def __init__(self, files: ProgressFiles) -> None:
        """Count in the progress files of the round."""
        self._files = files
        self._saves = 0
        self._step: int | None = None
        self._loaded: float | None = None

    def env(self, local_rank: int) -> dict[str, str]:
        """Return the variables that this worker needs."""
        return {SAVES: f"{self._files.env(local_rank)[PROGRESS]}:{SAVES_AT}:{STEP_AT}"}

    def report(self, step: int | None) -> dict[str, Any]:
        """Return the fields of a heartbeat; `step` is that of the furthest worker, by any source."""
        read = map(WorkerSaves.read, self._files.read_bytes(SAVES_AT, _FORMAT.size))
        found = [worker for worker in read if worker is not None]
        if not found:
            return {}
        longest = max(found, key=lambda worker: (worker.seconds, worker.saves))
        if longest.saves > self._saves:  # a worker that reports no steps does not know the step
            self._saves, self._step = longest.saves, step if longest.step is None else longest.step
        fields = {"load_seconds": self._loads(found, step), "save_seconds": longest.seconds, "saved_step": self._step}
        hidden = not longest.saves and any(worker.elsewhere for worker in found)
        return {**fields, "saves": None if hidden else longest.saves}

    def _loads(self, found: Iterable[WorkerSaves], step: int | None) -> float:
        """Return the seconds of the loads before the first step that is known."""
        if self._loaded is not None:
            return self._loaded
        seconds = max(worker.load_seconds for worker in found)
        if step is not None:
            self._loaded = seconds
        return seconds
