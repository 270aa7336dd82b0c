"""The work queue: no key is processed twice at the same time, none is lost; with timers, back-off, and fair lanes.

Keys of different lanes take turns, so that the jobs of one namespace do not delay those of another. The queue does not
know what a key stands for. Its clock is the event loop's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from math import inf
from typing import Generic, TypeVar

from pytorchjob_operator.control.lanes import Lanes
from pytorchjob_operator.errors import ApiError, Unavailable
from pytorchjob_operator.kube.backoff import Backoff

K = TypeVar("K", bound=Hashable)
Handler = Callable[[K], Awaitable[None]]
_log = logging.getLogger(__name__)
_UNAVAILABLE_SECONDS = 30.0
"""Maximum delay after an Unavailable error, however long the outage; a refused request may wait longer."""
_BREATHS = 5
"""Turns of the event loop between two passes: the plans of large jobs may not block it in a row."""


class WorkQueue(Generic[K]):
    """A set of waiting keys; a key that is added while it is processed is processed once more afterwards."""

    def __init__(self, backoff: Backoff | None = None, lane: Callable[[K], Hashable] = lambda key: None) -> None:
        """`lane(key)` is asked whenever a key begins to wait."""
        self._backoff = backoff or Backoff(first=0.1, cap=300.0)
        self._lane = lane
        self._lanes: Lanes[K] = Lanes()
        self._changed = asyncio.Event()
        self._waiting: set[K] = set()
        self._active: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._attempts: dict[K, int] = {}
        self._stopping = False

    def __len__(self) -> int:
        """The number of keys that wait for their turn now; pending timers do not count."""
        return len(self._waiting) + len(self._again)

    @property
    def active(self) -> int:
        """The number of keys that are processed now."""
        return len(self._active)

    def add(self, key: K) -> None:
        """Process the key as soon as it is its turn."""
        if key in self._active:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._lanes.put(key, self._lane(key))
            self._changed.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Process the key after this many seconds; of several timers for a key the earliest counts."""
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, seconds)
        timer = self._timers.get(key)
        if timer and timer.when() <= when:
            return
        if timer:
            timer.cancel()
        self._timers[key] = loop.call_at(when, self._due, key)

    def retry(self, key: K, at_least: float = 0.0, at_most: float = inf) -> float:
        """Process the key again after its back-off, which grows with each call; returns the delay in seconds."""
        attempt = self._attempts.get(key, 0)
        self._attempts[key] = attempt + 1
        seconds = max(at_least, min(at_most, self._backoff.delay(attempt)))
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: K) -> None:
        """Reset the key's back-off."""
        self._attempts.pop(key, None)

    def stop(self) -> None:
        """Let the keys in process finish, then let `run` return."""
        self._stopping = True
        self._changed.set()

    async def run(self, handler: Handler[K], workers: int = 16) -> None:
        """Process keys until `stop` or cancellation, at most `workers` of each lane at the same time.

        If the handler raises, its key is retried. If it returns without a call of `retry`, the key's back-off is reset.
        """
        try:
            async with asyncio.TaskGroup() as group:
                while not self._stopping:
                    key = self._lanes.take(workers)
                    if key is None:
                        self._changed.clear()
                        await self._changed.wait()
                        continue
                    self._waiting.discard(key)
                    self._active.add(key)
                    group.create_task(self._process(handler, key))
                    for _ in range(_BREATHS):
                        await asyncio.sleep(0)
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def _process(self, handler: Handler[K], key: K) -> None:
        try:
            await self._handle(handler, key)
        finally:
            self._done(key)

    async def _handle(self, handler: Handler[K], key: K) -> None:
        before = self._attempts.get(key, 0)
        try:
            await handler(key)
        except ApiError as error:
            at_most = _UNAVAILABLE_SECONDS if isinstance(error, Unavailable) else inf
            seconds = self.retry(key, error.retry_after or 0.0, at_most)
            _log.warning("%s: %s; retrying in %.1f s", key, error, seconds)
        except Exception:  # top of the loop: one failing key may not stop the others
            seconds = self.retry(key)
            _log.exception("%s: failed; retrying in %.1f s", key, seconds)
        if self._attempts.get(key, 0) == before:
            self.forget(key)

    def _done(self, key: K) -> None:
        self._active.discard(key)
        self._lanes.done(key)
        self._changed.set()
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)
