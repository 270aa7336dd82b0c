"""Progress that a script shows without a call of `progress()`: the values, and which worker is the furthest. Pure.

`status_request` reads them from what a library posts, `progress_lines` from what a script prints, and
`observed_progress` puts both together. People see these values. No decision about hangs or restarts uses them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

_LEAST_SECONDS = 1.0
"""A speed over a shorter time would be an accident of the clock."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of one worker's progress; None: not known."""

    step: int | None = None
    total: int | None = None
    percent: int | None = None
    remaining: int | None = None
    """Seconds until the end, as the script estimates them."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    rate: float = 0.0
    """Steps per second. 0: unknown."""

    @property
    def known(self) -> bool:
        """Return whether there is anything to show."""
        return self.step is not None or self.percent is not None or bool(self.metrics)

    @property
    def position(self) -> tuple[int, int]:
        """Return how far the worker is, to compare it with others."""
        return (-1 if self.percent is None else self.percent, -1 if self.step is None else self.step)


def furthest(found: Iterable[Observation]) -> Observation | None:
    """Return the observation that is the furthest, the first of equals; None if nothing is known."""
    return max((each for each in found if each.known), key=lambda each: each.position, default=None)


def with_pace(now: Observation, first: Observation, seconds: float) -> Observation:
    """Add the speed since `first`, which was `seconds` before, and the remaining time unless the script gave it."""
    if seconds < _LEAST_SECONDS:
        return now
    rate = now.rate
    if now.step is not None and first.step is not None and now.step > first.step:
        rate = (now.step - first.step) / seconds
    remaining = now.remaining
    if remaining is None:
        remaining = _by_steps(now, rate) if now.total is not None else _by_percent(now, first, seconds)
    return replace(now, rate=rate, remaining=remaining)


def _by_steps(now: Observation, rate: float) -> int | None:
    if now.step is None or now.total is None or rate <= 0:
        return None
    return round(max(now.total - now.step, 0) / rate)


def _by_percent(now: Observation, first: Observation, seconds: float) -> int | None:
    if now.percent is None or first.percent is None or now.percent <= first.percent:
        return None
    return round((100 - now.percent) * seconds / (now.percent - first.percent))
