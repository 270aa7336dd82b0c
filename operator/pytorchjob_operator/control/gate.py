"""Limits the concurrent writes of all jobs, and shares them: between namespaces first, then between a namespace's jobs.

A job of ten thousand pods must not delay a job of one pod. It knows nothing of Kubernetes and has no clock.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_LIMIT = 32


class FairGate:
    """A semaphore whose waiters take turns by namespace, and within a namespace by job."""

    def __init__(self, limit: int = _LIMIT) -> None:
        self._free = limit
        self._waiting: OrderedDict[str, OrderedDict[str, deque[asyncio.Future[None]]]] = OrderedDict()

    @asynccontextmanager
    async def slot(self, namespace: str, job: str) -> AsyncIterator[None]:
        """Wait for this job's turn; the slot is free again when the context ends."""
        await self._acquire(namespace, job)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, namespace: str, job: str) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, OrderedDict()).setdefault(job, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        while (turn := self._next()) is not None:
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _next(self) -> asyncio.Future[None] | None:
        """Take the next waiter, and put its namespace and its job at the end of their lines."""
        if not self._waiting:
            return None
        namespace, jobs = self._waiting.popitem(last=False)
        job, turns = jobs.popitem(last=False)
        turn = turns.popleft()
        if turns:
            jobs[job] = turns
        if jobs:
            self._waiting[namespace] = jobs
        return turn
