"""Delay before the next attempt: exponential, bounded, and randomized so that replicas do not retry in step."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

_spread = random.SystemRandom().random
_MAX_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays of `first`, twice that, ... up to `cap` seconds; each is drawn between 50 and 100 % of that value."""

    first: float = 0.1
    cap: float = 30.0
    spread: Callable[[], float] = field(default=_spread, repr=False)

    def delay(self, attempt: int) -> float:
        """Seconds before attempt number `attempt`, counted from 0."""
        whole = min(self.cap, self.first * 2.0 ** min(attempt, _MAX_DOUBLINGS))
        return whole * (0.5 + 0.5 * self.spread())
