"""What an extension says of workers that hang. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HangVerdict:
    """The workers have to be restarted, and why."""

    reason: str
    local_ranks: tuple[int, ...] = ()
    """The suspects; empty: unknown."""
    idle: float = 0.0
    """Seconds since the last progress, of whatever kind the rule watches; 0: they did not hang."""
    stopped: bool = False
    """A signal has stopped the suspects, so that nothing outside of this pod is the cause."""
