"""What interrupted a job's rounds, and how often. Pure."""

from dataclasses import dataclass, replace
from enum import StrEnum


class InterruptionKind(StrEnum):
    """What interrupted a round. The values are the names of the counters."""

    POD_LOST = "pod_losses"
    CRASH = "crashes"
    """A worker process failed."""
    HANG = "hangs"


@dataclass(frozen=True, slots=True)
class Causes:
    """How often each cause interrupted a round."""

    pod_losses: int = 0
    crashes: int = 0
    hangs: int = 0
    last: InterruptionKind | None = None
    """The cause of the last interruption. None: unknown."""
    open: bool = False
    """True from an interruption to the next round."""

    def added(self, cause: InterruptionKind | None) -> "Causes":
        """Return the counts after another interruption."""
        return replace(self._changed(cause, 1), last=cause, open=True)

    def corrected(self, cause: InterruptionKind) -> "Causes":
        """Return the counts with another cause of the open interruption: a lost pod lets the workers of others fail."""
        return self._changed(self.last, -1).added(cause) if self.open else self

    def closed(self) -> "Causes":
        """Return the counts at the start of a round."""
        return replace(self, open=False)

    def _changed(self, cause: InterruptionKind | None, by: int) -> "Causes":
        return self if cause is None else replace(self, **{cause.value: getattr(self, cause.value) + by})
