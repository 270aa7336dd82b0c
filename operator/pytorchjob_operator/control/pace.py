"""When a pod that another client deletes right after its creation is created again: at once, then ever more slowly.

Without a pace, two controllers that disagree about a pod would create and delete it many times a second. Kueue deletes
each pod of a group beyond the group's total count.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

FREE = 3
"""A pod is created again at once this often."""
_SHORT = timedelta(seconds=5)
"""A pod that had to be created again sooner than this had a short life."""
_FIRST = timedelta(seconds=1)
_CAP = timedelta(seconds=60)
_MAX_DOUBLINGS = 16
REFUSED = timedelta(minutes=5)
"""How long after a refusal a pod that the job can do without is tried again."""


@dataclass(frozen=True, slots=True)
class _Creation:
    at: datetime
    short_lives: int
    """How many pods of this name in a row had a short life."""

    @property
    def due(self) -> datetime:
        """When the next pod of this name may be created."""
        if self.short_lives < FREE:
            return self.at
        factor = 1 << min(self.short_lives - FREE, _MAX_DOUBLINGS)
        return self.at + min(_FIRST * factor, _CAP)


@dataclass
class WritePace:
    """The creations of one job's pods. Losing it only creates a pod earlier."""

    _creations: dict[str, _Creation] = field(default_factory=dict)
    _refused: dict[str, datetime] = field(default_factory=dict)

    def created(self, name: str, now: datetime) -> None:
        """Record that the operator created a pod."""
        last = self._creations.get(name)
        short = last is not None and now < last.due + _SHORT
        self._refused.pop(name, None)
        self._creations[name] = _Creation(now, last.short_lives + 1 if last and short else 0)

    def refused(self, name: str, now: datetime) -> None:
        """Record that the API server refused a pod that the job can do without."""
        self._refused[name] = now + REFUSED

    def deleted(self, name: str) -> None:
        """Record that the operator deleted a pod: its replacement does not wait."""
        self._creations.pop(name, None)

    def postponed(self, now: datetime) -> dict[str, datetime]:
        """Return the pods that must not be created yet, with the time from which they may be."""
        due = {name: creation.due for name, creation in self._creations.items()} | self._refused
        return {name: time for name, time in due.items() if time > now}
