"""Keys that wait, in lanes that take turns: a long lane does not delay a short one.

A lane may have a limited number of its keys in process at the same time. No clock, no task.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Lanes(Generic[K]):
    """First in, first out within a lane; the lanes in turns."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Hashable, deque[K]] = OrderedDict()
        self._running: Counter[Hashable] = Counter()
        self._lane_of: dict[K, Hashable] = {}

    def put(self, key: K, lane: Hashable) -> None:
        """Let the key wait at the end of its lane."""
        self._waiting.setdefault(lane, deque()).append(key)

    def take(self, most: int) -> K | None:
        """Take the next key from the first lane that has fewer than `most` keys in process; None if there is none."""
        free = [lane for lane in self._waiting if self._running[lane] < most]
        if not free:
            return None
        lane = free[0]
        keys = self._waiting.pop(lane)
        key = keys.popleft()
        if keys:
            self._waiting[lane] = keys
        self._running[lane] += 1
        self._lane_of[key] = lane
        return key

    def done(self, key: K) -> None:
        """The key is no longer in process."""
        lane = self._lane_of.pop(key)
        self._running[lane] -= 1
        if not self._running[lane]:
            del self._running[lane]
