"""Joins the threads of all readers: each waits while its queue is full, so that memory stays bounded."""

import time
from collections.abc import Callable, Hashable
from threading import Condition, Lock
from typing import Generic, TypeVar

from pytorchjob.logs.merge import Merger
from pytorchjob.logs.reader import SessionOver

T = TypeVar("T")


class Funnel(Generic[T]):
    """A merger for several threads that put lines and one thread that takes them."""

    def __init__(self, merger: Merger[T], clock: Callable[[], float] = time.monotonic) -> None:
        self._merger, self._clock = merger, clock
        lock = Lock()
        self._room, self._lines = Condition(lock), Condition(lock)
        self._stopped = False

    def add(self, source: Hashable, opens_within: float | None = None) -> None:
        """Add a source; all others wait for its first line, at most this number of seconds."""
        with self._lines:
            self._merger.add(source, None if opens_within is None else self._clock() + opens_within)

    def ready(self, source: Hashable) -> None:
        """Do not wait any longer for the source's first line."""
        with self._lines:
            self._merger.ready(source)
            self._lines.notify()

    def close(self, source: Hashable) -> None:
        """The source puts no further line."""
        with self._lines:
            self._merger.close(source)
            self._lines.notify()

    def put(self, source: Hashable, at: int, item: T, size: int) -> None:
        """Add a line; waits while the source's queue is full."""
        with self._room:
            while self._merger.is_full(source) and not self._stopped:
                self._room.wait()
            self._check()
            was_empty = self._merger.is_empty
            self._merger.put(source, at, item, self._clock(), size)
            if was_empty or self._merger.is_full(source):
                self._lines.notify()

    def check(self) -> None:
        """Raise `SessionOver` if nothing takes lines any more."""
        with self._lines:
            self._check()

    def take(self, seconds: float) -> list[T]:
        """Return the next lines; waits for them, at most about this number of seconds."""
        with self._lines:
            batch = self._merger.take(self._clock())
            if not batch:
                due = self._merger.due(self._clock())
                self._lines.wait(seconds if due is None else min(due, seconds))
                batch = self._merger.take(self._clock())
            if batch:
                self._room.notify_all()
            return batch

    def take_rest(self) -> list[T]:
        """Stop, and return all lines that are left."""
        self.stop()
        with self._lines:
            return self._merger.take(float("inf"), most=1 << 62)

    def stop(self) -> None:
        """Let all waiting threads end."""
        with self._lines:
            self._stopped = True
            self._room.notify_all()

    @property
    def is_empty(self) -> bool:
        """True if no line is left to take."""
        with self._lines:
            return self._merger.is_empty

    @property
    def is_over(self) -> bool:
        """True if all sources are closed and no line is left."""
        with self._lines:
            return self._merger.is_over

    def _check(self) -> None:
        if self._stopped:
            raise SessionOver
