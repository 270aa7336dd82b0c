"""The write fence: until when this process may write, by its own monotonic clock.

The elector moves it. The client that writes checks it at the moment at which a request leaves, and closes its
connections when it falls. It sends nothing itself.
"""

import asyncio
from collections.abc import Callable

_NEVER = float("-inf")


class Fence:
    """Open until a point in time that each renewal of the Lease moves; closed at first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._on_fall: list[Callable[[], None]] = []

    def remaining(self) -> float:
        """Seconds for which this process may still write; 0 or less: it may not."""
        return self._until - self._clock()

    def extend(self, until: float) -> None:
        """Allow writes until this time."""
        self._until = until
        if self._timer is None:
            self._watch()

    def fall(self) -> None:
        """Allow no write from now on, and end those that are in flight."""
        self._until = _NEVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for callback in self._on_fall:
            callback()

    def on_fall(self, callback: Callable[[], None]) -> None:
        """Call this each time the right to write ends, whatever ends it."""
        self._on_fall.append(callback)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, self.remaining()), self._due)

    def _due(self) -> None:
        self._timer = None
        if self.remaining() > 0.0:
            self._watch()
        else:
            self.fall()
