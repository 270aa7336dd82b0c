"""The life of the process: connect, fill the caches, become the leader, work, and on SIGTERM shut down in order.

A standby does everything but work, so that it takes over with filled caches. The process ends with an error if it loses
the Lease to another process or if an essential task ends. The kubelet then starts a new one: nothing is stored here.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.app import http
from pytorchjob_operator.app.counts import by_phase
from pytorchjob_operator.app.metrics import Metrics
from pytorchjob_operator.app.operator import Operator
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from pytorchjob_operator.settings import Settings

logger = logging.getLogger(__name__)

LAG_SECONDS = 5.0
"""The process is not alive if its event loop has been blocked for this long."""
STALE_SECONDS = 30.0
"""The process is not ready if a watch has received nothing from the API server for this long."""
DRAIN_SECONDS = 5.0
"""Time for running passes to finish after SIGTERM."""
_HEARTBEAT_SECONDS = 0.5


class OperatorProcess:
    """One running operator: its tasks, its health, its shutdown."""

    def __init__(self, settings: Settings, connection: ApiEndpoint) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._last_heartbeat = self._loop.time()
        self.metrics = Metrics()
        self.operator = Operator(settings, connection, self.metrics)
        self._tasks: list[asyncio.Task[None]] = []
        self._work: list[asyncio.Task[None]] = []
        """The task that reconciles, once it is started; it is part of `_tasks` too."""
        self._election: list[asyncio.Task[None]] = []
        """The task that holds the Lease; it is part of `_tasks` too, and ends last."""
        self._silent = ""

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT, then `_shut_down`; raises the error of an essential task that ended."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, stop.set)
        self._publish()
        operator = self.operator
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(operator.client)
            await stack.enter_async_context(operator.writer)
            await stack.enter_async_context(operator.lease_client)
            routes = http.build_app(self.alive, self.ready, self.metrics.registry)
            runner = await http.serve(routes, self._settings.http_port)
            stack.push_async_callback(runner.cleanup)
            stack.push_async_callback(self._shut_down)
            self._start(self._heartbeat(), operator.watch_jobs())
            self._work = self._start(operator.work())
            self._start(operator.recorder.run(), operator.children.run(), operator.coordinator.run())
            self._start(operator.node_watch.run())
            self._start(*(reflector.run() for reflector in operator.reflectors))
            if self._settings.leader_elect:
                self._election = self._start(operator.elector.run())
            await self._until(stop)

    def alive(self) -> str | None:
        """Return what is wrong with the process; None if nothing is."""
        lag = self._loop.time() - self._last_heartbeat
        if lag > LAG_SECONDS:
            return f"the event loop has been blocked for {lag:.0f} s"
        if any(task.done() for task in self._tasks):
            return "an essential task has ended; see the log"
        return self.operator.coordinator.problem()

    def ready(self) -> str | None:
        """Return why the operator has no current view of the cluster; None if it has."""
        if not all(reflector.synced.is_set() for reflector in self.operator.reflectors):
            return "the caches are not filled yet"
        silent = self._silent_watches()
        if silent:
            return f"the watch of {silent} has received nothing from the API server for {STALE_SECONDS:.0f} s"
        return self.operator.jobs.problem()

    def _silent_watches(self) -> str:
        """The resources whose watch is silent, for people; empty if all receive data."""
        ages = self._contact_ages()
        return ", ".join(sorted(plural for plural, age in ages.items() if age > STALE_SECONDS))

    def _contact_ages(self) -> dict[str, float]:
        """Seconds since the API server last sent data for each watched resource; of several watches the most silent."""
        ages = {names.PLURAL: self.operator.jobs.last_contact_age()} if self.operator.jobs.alive else {}
        for reflector in self.operator.reflectors:
            age = reflector.last_contact_age(self._loop.time())
            ages[reflector.plural] = max(age, ages.get(reflector.plural, 0.0))
        return ages

    def _log_silence(self) -> None:
        """Log each change of the set of silent watches."""
        silent = self._silent_watches() if all(r.synced.is_set() for r in self.operator.reflectors) else ""
        if silent and silent != self._silent:
            logger.warning("the watch of %s has received nothing from the API server for %.0f s", silent, STALE_SECONDS)
        elif self._silent and not silent:
            logger.info("all watches receive data from the API server again")
        self._silent = silent

    def _start(self, *routines: Coroutine[Any, Any, None]) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(routine) for routine in routines]
        self._tasks += tasks
        return tasks

    async def _until(self, stop: asyncio.Event) -> None:
        waiter = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([waiter, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        for task in done - {waiter}:
            task.result()

    async def _shut_down(self) -> None:
        """Finish the running passes, stop the watches, release the Lease."""
        logger.info("shutting down")
        self.operator.queue.stop()
        await self.operator.coordinator.stop()
        self._loop.call_later(DRAIN_SECONDS, lambda: [task.cancel() for task in self._work])
        if self._work and self.operator.queue.active:
            await asyncio.wait(self._work, timeout=DRAIN_SECONDS)
        await _end([task for task in self._tasks if task not in self._election])
        await _end(self._election)  # last: nothing may be written once the Lease is released
        if self.operator.jobs.alive:
            await asyncio.to_thread(self.operator.jobs.stop)

    async def _heartbeat(self) -> None:
        gc.collect()
        gc.freeze()  # objects from the start stay: garbage collections need not visit them again
        while True:
            self._last_heartbeat = self._loop.time()
            self._log_silence()
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    def _publish(self) -> None:
        operator, metrics = self.operator, self.metrics
        metrics.gauge("leader", "1 while this process is the leader.", lambda: float(operator.may_write()))
        metrics.gauge("workqueue_depth", "Jobs that wait for a worker.", lambda: float(len(operator.queue)))
        metrics.gauges("jobs", "Jobs in the cache, by phase.", "phase", lambda: by_phase(operator.caches.jobs))
        metrics.gauge("pods", "Pods in the cache.", lambda: float(len(operator.caches.pods)))
        operator.coordinator.publish(metrics)
        metrics.gauge("events_dropped", "Events that were not sent.", lambda: float(operator.recorder.dropped))
        metrics.gauge(
            "watch_last_contact_age_seconds",
            "Seconds since the API server last sent data, for the most silent watch.",
            lambda: max(self._contact_ages().values()),
        )


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
