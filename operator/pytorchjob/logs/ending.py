"""Decides when the logs of a followed job are complete."""

from collections.abc import Collection
from dataclasses import dataclass

from pytorchjob.logs.containers import LogPhase, LogState

SETTLE_SECONDS = 5.0
"""A container that outlives its job is followed until it prints nothing for this time."""
DRAIN_SECONDS = 300.0
"""How long the rest of the logs may take after the job's end."""


@dataclass(slots=True)
class EndOfJob:
    """The end of a job, and the time of the last line; all times are monotonic seconds."""

    ended_at: float | None = None
    line_at: float = float("-inf")

    def is_complete(self, now: float, left: Collection[tuple[LogState, bool]]) -> bool:
        """True if nothing more comes of the logs that are left: the state of each, and whether it is current."""
        if self.ended_at is None:
            return False
        begun = [(state, current) for state, current in left if state.phase is not LogPhase.NOT_STARTED]
        if not begun:
            return True
        outlive = all(state.phase is LogPhase.OPEN and current for state, current in begun)
        return outlive and (self.is_late(now) or now - max(self.line_at, self.ended_at) >= SETTLE_SECONDS)

    def is_late(self, now: float) -> bool:
        """True if the logs cannot be read to their end in time."""
        return self.ended_at is not None and now - self.ended_at >= DRAIN_SECONDS
