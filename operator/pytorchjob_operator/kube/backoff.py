"""How long to wait before the next attempt: exponential, bounded, spread so that replicas do not march in step."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

_spread = random.SystemRandom().random
_MAX_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits of `first`, twice that, ... up to `cap` seconds, each between half of it and all of it."""

    first: float = 0.1
    cap: float = 30.0
    spread: Callable[[], float] = field(default=_spread, repr=False)

    def delay(self, attempt: int) -> float:
        """Seconds before attempt number `attempt`, counted from 0."""
        whole = min(self.cap, self.first * 2.0 ** min(attempt, _MAX_DOUBLINGS))
        return whole * (0.5 + 0.5 * self.spread())
