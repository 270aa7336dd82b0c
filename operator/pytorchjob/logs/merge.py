"""Merges the lines of several sources by their time. It waits a bounded time for a source that is late.

Each source's lines keep their order, also if its clock steps back. A line waits only while a source has none to
compare: until it is `wait` seconds old, or a line that is newer by that has arrived, or its queue is half full.
"""

import heapq
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pytorchjob.logs.lines import NANOSECONDS

T = TypeVar("T")
_OVERHEAD = 300
"""Bytes that Python needs for a line in addition to its text."""


@dataclass(slots=True)
class _Queue(Generic[T]):
    number: int
    lines: deque[tuple[int, float, int, T]] = field(default_factory=deque)
    size: int = 0
    is_closed: bool = False


class Merger(Generic[T]):
    """A bounded queue for each source."""

    def __init__(self, wait: float, limit: int) -> None:
        """Wait at most `wait` seconds for a source, and keep about `limit` bytes of each, or a single longer line."""
        self._wait, self._limit = wait, limit
        self._queues: dict[Hashable, _Queue[T]] = {}
        self._opening: dict[Hashable, float] = {}
        self._heads: list[tuple[int, int, Hashable]] = []
        self._silent = 0  # sources that are open and have no line
        self._newest = 0
        self._count = 0

    def add(self, source: Hashable, opens_until: float | None = None) -> None:
        """Add a source; until it is ready, or until this time, all others wait for its first line."""
        self._queues[source] = _Queue(self._count)
        self._count += 1
        self._silent += 1
        if opens_until is not None:
            self._opening[source] = opens_until

    def ready(self, source: Hashable) -> None:
        """Do not wait any longer for the source's first line."""
        self._opening.pop(source, None)

    def put(self, source: Hashable, at: int, item: T, now: float, size: int = 0) -> None:
        """Append a line of `size` bytes with the timestamp `at`; ask `is_full` first."""
        self.ready(source)
        queue = self._queues[source]
        queue.lines.append((at, now, size + _OVERHEAD, item))
        queue.size += size + _OVERHEAD
        self._newest = max(self._newest, at)
        if len(queue.lines) == 1:
            self._silent -= 1
            heapq.heappush(self._heads, (at, queue.number, source))

    def is_full(self, source: Hashable) -> bool:
        """True if the source must wait before it puts a line."""
        return self._queues[source].size >= self._limit

    def close(self, source: Hashable) -> None:
        """Wait for no further line of the source; those that it has put still come."""
        self.ready(source)
        queue = self._queues.get(source)
        if queue is None or queue.is_closed:
            return
        queue.is_closed = True
        if not queue.lines:
            self._silent -= 1
            del self._queues[source]

    @property
    def is_empty(self) -> bool:
        """True if no line is left to take."""
        return not self._heads

    @property
    def is_over(self) -> bool:
        """True if all sources are closed and no line is left to take."""
        return not self._queues

    def take(self, now: float, most: int = 1000) -> list[T]:
        """Return the next lines, in the order of their timestamps."""
        taken: list[T] = []
        while self._heads and len(taken) < most and self._may_go(now):
            taken.append(self._pop())
        return taken

    def due(self, now: float) -> float | None:
        """Return in how many seconds the next line may go; None: not before the next call of another method."""
        if not self._heads:
            return None
        arrived = self._queues[self._heads[0][2]].lines[0][1]
        return max(0.0, max([arrived + self._wait, *self._opening.values()]) - now)

    def _pop(self) -> T:
        _, _, source = heapq.heappop(self._heads)
        queue = self._queues[source]
        _, _, size, item = queue.lines.popleft()
        queue.size -= size
        if queue.lines:
            heapq.heappush(self._heads, (queue.lines[0][0], queue.number, source))
        elif queue.is_closed:
            del self._queues[source]
        else:
            self._silent += 1
        return item

    def _may_go(self, now: float) -> bool:
        if not self._silent:
            return True
        if self._opening and now < max(self._opening.values()):
            return False
        at, _, source = self._heads[0]
        queue = self._queues[source]
        is_old = now - queue.lines[0][1] >= self._wait or self._newest - at >= self._wait * NANOSECONDS
        return is_old or (queue.size * 2 >= self._limit and self._wait < float("inf"))
