"""The life of the process: connect, fill the caches, become the leader, work, leave in order.

A standby does everything but work, so that it takes over with its caches full. The process ends with an error when it
loses the lease to another or when an essential task dies: the kubelet starts a fresh one, and nothing is stored here.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

from pytorchjob_operator.app import http
from pytorchjob_operator.app.counts import by_phase
from pytorchjob_operator.app.metrics import Metrics
from pytorchjob_operator.app.operator import Operator
from pytorchjob_operator.kube.config import Connection
from pytorchjob_operator.settings import Settings

logger = logging.getLogger(__name__)

LAG_SECONDS = 5.0
"""A loop that has not turned for so long is not alive."""
STALE_SECONDS = 90.0
"""A watch that has not heard of the API server for so long does not see."""
DRAIN_SECONDS = 5.0
_BEAT_SECONDS = 0.5


class Process:
    """One running operator: its tasks, its health, its end."""

    def __init__(self, settings: Settings, connection: Connection) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._beat = self._loop.time()
        self.metrics = Metrics()
        self.operator = Operator(settings, connection, self.metrics)
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT; raises whatever ended an essential task."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, stop.set)
        self._publish()
        operator = self.operator
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(operator.client)
            await stack.enter_async_context(operator.lease_client)
            routes = http.build_app(self.alive, self.ready, self.metrics.registry)
            runner = await http.serve(routes, self._settings.http_port)
            stack.push_async_callback(runner.cleanup)
            stack.push_async_callback(self._leave)
            self._start(self._heartbeat(), operator.watch_jobs(), operator.work(), operator.recorder.run())
            self._start(operator.children.run())
            self._start(*(reflector.run() for reflector in operator.reflectors))
            if self._settings.leader_elect:
                self._start(operator.elector.run())
            await self._until(stop)

    def alive(self) -> str | None:
        """What is wrong with the process, if anything."""
        lag = self._loop.time() - self._beat
        if lag > LAG_SECONDS:
            return f"the event loop has not turned for {lag:.0f} s"
        if any(task.done() for task in self._tasks):
            return "a task has ended"
        return self.operator.coordinator.trouble()

    def ready(self) -> str | None:
        """What keeps the operator from seeing the cluster, if anything."""
        for reflector in self.operator.reflectors:
            age = reflector.last_contact_age(self._loop.time())
            if not reflector.synced.is_set():
                return "the caches are not filled yet"
            if age > STALE_SECONDS:
                return f"blind for {age:.0f} s"
        return self.operator.jobs.trouble()

    def _start(self, *routines: Coroutine[Any, Any, None]) -> None:
        self._tasks += [asyncio.create_task(one) for one in routines]

    async def _until(self, stop: asyncio.Event) -> None:
        waiter = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([waiter, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        for task in done - {waiter}:
            task.result()

    async def _leave(self) -> None:
        """Finish what is in hand, stop watching, release the lease."""
        logger.info("leaving")
        self.operator.queue.stop()
        await self.operator.coordinator.stop()
        self._loop.call_later(DRAIN_SECONDS, lambda: [task.cancel() for task in self._tasks])
        work = self._tasks[2:3] if self.operator.queue.active else []
        await asyncio.wait(work, timeout=DRAIN_SECONDS) if work else None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.operator.jobs.alive:
            await asyncio.to_thread(self.operator.jobs.stop)

    async def _heartbeat(self) -> None:
        gc.collect()
        gc.freeze()  # what start-up made stays: collections need not look at it again
        while True:
            self._beat = self._loop.time()
            await asyncio.sleep(_BEAT_SECONDS)

    def _publish(self) -> None:
        operator, metrics = self.operator, self.metrics
        metrics.gauge("leader", "1 while this process leads.", lambda: float(operator.may_write()))
        metrics.gauge("workqueue_depth", "Jobs that wait for a worker.", lambda: float(len(operator.queue)))
        metrics.gauges("jobs", "Jobs in the cache, by phase.", "phase", lambda: by_phase(operator.caches.jobs))
        metrics.gauge("pods", "Pods in the cache.", lambda: float(len(operator.caches.pods)))
        operator.coordinator.publish(metrics)
        metrics.gauge("events_dropped", "Events that were not sent.", lambda: float(operator.recorder.dropped))
        metrics.gauge(
            "watch_last_contact_age_seconds",
            "Seconds since the quietest watch of pods and services heard of the API server.",
            lambda: max(one.last_contact_age(self._loop.time()) for one in operator.reflectors),
        )
