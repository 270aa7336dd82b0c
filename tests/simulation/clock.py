"""Simulated time: what happens next, and the one source of chance of a schedule."""

import heapq
from collections.abc import Callable
from random import Random

Action = Callable[[], None]
START = 1000.0


class Clock:
    """A queue of actions in the order of their times."""

    def __init__(self, random: Random) -> None:
        self.now = START
        self.random = random
        self._queue: list[tuple[float, int, Action]] = []
        self._order = 0

    def after(self, seconds: float, action: Action) -> None:
        """Do something later."""
        self._order += 1
        heapq.heappush(self._queue, (self.now + seconds, self._order, action))

    def soon(self, low: float, high: float, action: Action) -> None:
        """Do something at a random time between these delays."""
        self.after(low + (high - low) * self.random.random(), action)

    def run(self, until: float) -> None:
        """Do everything up to this time."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, action = heapq.heappop(queue)
            action()
        self.now = max(self.now, until)


class Sleeper:
    """A process that may be frozen: what would happen to it meanwhile happens in the same order when it wakes up."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.asleep = 0.0
        """Until when it is frozen."""
        self.ahead = 0.0
        """How far its monotonic clock has jumped forward, in seconds."""

    def monotonic(self) -> float:
        """Return its own monotonic time."""
        return self._clock.now + self.ahead

    def frozen(self, action: Action) -> bool:
        """Return whether it is frozen now; the action then follows when it wakes up."""
        if self._clock.now >= self.asleep:
            return False
        self._clock.after(self.asleep - self._clock.now, action)
        return True
