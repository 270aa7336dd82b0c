"""Which key is worked on next: each at most once at a time, never lost, deadlines and back-off included.

It knows nothing of what a key stands for, and keeps time by the event loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from math import inf
from typing import Generic, TypeVar

from pytorchjob_operator.errors import ApiError, Unavailable
from pytorchjob_operator.kube.backoff import Backoff

K = TypeVar("K", bound=Hashable)
Handler = Callable[[K], Awaitable[None]]
_log = logging.getLogger(__name__)
_AWAY_SECONDS = 30.0
"""A server that was away is asked again so soon, however long it was; what it refused can wait longer."""


class WorkQueue(Generic[K]):
    """A set of keys that wait, each handed to one worker at a time.

    A key that is added while it is worked on is handed out once more afterwards. `on_wait(seconds)` is told how long
    each key waited for a worker.
    """

    def __init__(self, backoff: Backoff | None = None, on_wait: Callable[[float], None] = lambda seconds: None) -> None:
        self._backoff = backoff or Backoff(first=0.1, cap=300.0)
        self._on_wait = on_wait
        self._ready: asyncio.Queue[K | None] = asyncio.Queue()
        self._waiting: dict[K, float] = {}
        self._active: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._attempts: dict[K, int] = {}
        self._workers = 0
        self._stopping = False

    def __len__(self) -> int:
        """How many keys wait for a worker now; deadlines ahead do not count."""
        return len(self._waiting) + len(self._again)

    @property
    def active(self) -> int:
        """How many keys are worked on now."""
        return len(self._active)

    def add(self, key: K) -> None:
        """Hand the key out as soon as a worker is free."""
        if key in self._active:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = asyncio.get_running_loop().time()
            self._ready.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Hand the key out after so many seconds; of several such wishes the earliest counts."""
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, seconds)
        timer = self._timers.get(key)
        if timer and timer.when() <= when:
            return
        if timer:
            timer.cancel()
        self._timers[key] = loop.call_at(when, self._due, key)

    def retry(self, key: K, at_least: float = 0.0, at_most: float = inf) -> float:
        """Hand the key out again after its back-off, which grows with each call; returns the seconds."""
        attempt = self._attempts.get(key, 0)
        self._attempts[key] = attempt + 1
        seconds = max(at_least, min(at_most, self._backoff.delay(attempt)))
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: K) -> None:
        """Start the key's back-off from the beginning."""
        self._attempts.pop(key, None)

    def stop(self) -> None:
        """Let each worker finish the key in its hands, then let `run` return."""
        self._stopping = True
        for _ in range(self._workers):
            self._ready.put_nowait(None)

    async def run(self, handler: Handler[K], workers: int = 16) -> None:
        """Serve keys until `stop` or cancellation.

        A handler that raises has its key retried; one that returns without having called `retry` has it forgotten.
        """
        self._workers = workers
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._work(handler))
        finally:
            self._workers = 0
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def _work(self, handler: Handler[K]) -> None:
        while not self._stopping:
            key = await self._ready.get()
            if key is None:
                return
            self._on_wait(asyncio.get_running_loop().time() - self._waiting.pop(key))
            self._active.add(key)
            try:
                await self._handle(handler, key)
            finally:
                self._done(key)

    async def _handle(self, handler: Handler[K], key: K) -> None:
        before = self._attempts.get(key, 0)
        try:
            await handler(key)
        except ApiError as error:
            at_most = _AWAY_SECONDS if isinstance(error, Unavailable) else inf
            seconds = self.retry(key, error.retry_after or 0.0, at_most)
            _log.warning("%s: %s; again in %.1f s", key, error, seconds)
        except Exception:  # top of the loop: one bad key may not stop the others
            seconds = self.retry(key)
            _log.exception("%s: failed; again in %.1f s", key, seconds)
        if self._attempts.get(key, 0) == before:
            self.forget(key)

    def _done(self, key: K) -> None:
        self._active.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)
