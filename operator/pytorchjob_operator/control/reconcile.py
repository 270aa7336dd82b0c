"""One pass over one job: observe, plan, apply; then the status; then the events.

The order is a contract: children are written before the status that counts them, and an event is sent only for what was
written. Decisions are made in `plan`; after a crash at any point the next pass continues from what it observes.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from pytorchjob_operator import names
from pytorchjob_operator.control.apply import Applier
from pytorchjob_operator.control.caches import Caches
from pytorchjob_operator.control.cluster_objects import ClusterObjects
from pytorchjob_operator.control.namespaces import Namespaces
from pytorchjob_operator.control.nodes import Nodes
from pytorchjob_operator.control.pace import REFUSED, WritePace
from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.coordinator_update import CoordinatorUpdate, Forget
from pytorchjob_operator.errors import RequestRefused, Unavailable
from pytorchjob_operator.kube.recorder import Involved, Recorder
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ChildKind, EventType, LossCause
from pytorchjob_operator.observed import Refusal, ReportedEvent
from pytorchjob_operator.plan import Plan, make_plan, reserves
from pytorchjob_operator.plan.writes import CreatePod, CreateReserve, DeletePod, Event, Write

logger = logging.getLogger(__name__)

SOON = 0.05
"""Seconds until the next pass after another client changed the job: the watch will deliver the new version."""

FENCED = 1.0
"""Seconds until the next pass while the Lease is not renewed; until then the operator sends no request for the job."""


class JobCoordinator(Protocol):
    """The coordinator, as far as the reconciler needs it: reports come in, updates go out."""

    def report(self, uid: str) -> Report | None:
        """Return how a job's rounds stand; None if the coordinator does not know the job."""

    def apply(self, uid: str, update: CoordinatorUpdate) -> None:
        """Apply what a plan decided about a job."""


@dataclass
class _Memory:
    """State from one pass to the next; losing it only repeats a log line or an event, or writes something early."""

    reason: str = ""
    refusal: Refusal | None = None
    status_due: datetime | None = None
    reported: frozenset[ReportedEvent] = frozenset()
    pace: WritePace = field(default_factory=WritePace)
    reserved: Mapping[str, str] = field(default_factory=dict)

    def remember(self, writes: Iterable[Write], now: datetime) -> None:
        """Record the pods that were created and deleted."""
        for write in writes:
            if isinstance(write, CreatePod):
                self.pace.created(write.body["metadata"]["name"], now)
            elif isinstance(write, DeletePod):
                self.pace.deleted(write.name)


@dataclass
class Reconciler:
    """Reconciles jobs: each call runs one pass over one job."""

    caches: Caches
    applier: Applier
    recorder: Recorder
    clock: Callable[[], datetime]
    nodes: Nodes
    namespaces: Namespaces
    cluster: ClusterObjects
    want: Callable[[frozenset[ChildKind]], None] = lambda kinds: None
    """Called with the kinds of children that a plan needs to observe and that are not watched yet."""
    lost: Callable[[str, tuple[LossCause, ...]], None] = lambda namespace, causes: None
    """Called with the causes for which pods of a namespace were lost."""
    coordinator: JobCoordinator | None = None
    _memories: dict[str, _Memory] = field(default_factory=dict)

    async def __call__(self, uid: str) -> float | None:
        """Run one pass; returns the seconds until the next pass, None if only a change requires one.

        Raises an ApiError if the pass must be repeated with back-off; a refusal is raised after the status shows why.
        """
        job = self.caches.jobs.get(uid)
        if job is None:
            self._memories.pop(uid, None)
            self._update_coordinator(uid, Forget())
            return None
        if not self.applier.client.may_write():
            return FENCED
        memory = self._memories.setdefault(uid, _Memory())
        plan = self._plan(job, memory)
        if plan.namespace:
            await self.namespaces.read(job.metadata.namespace)
            plan = self._plan(job, memory)
            if plan.namespace:
                return SOON
        if plan.cluster:
            await self.cluster.read(plan.cluster, self.clock())
            plan = self._plan(job, memory)
        if plan.nodes:
            await self.nodes.read(plan.nodes, self.clock())
            plan = self._plan(job, memory)
        if plan.writes and job.status.conditions and not await self.applier.confirm(job):
            return SOON
        memory.reserved = plan.reserved
        needed = [write for write in plan.writes if not isinstance(write, CreateReserve)]
        optional = [write for write in plan.writes if isinstance(write, CreateReserve)]
        refusal = await self.applier.write(job, needed) if needed else None
        if refusal is None:
            memory.remember(needed, self.clock())
        plan = await self._publish(job, plan, refusal, memory)
        if refusal is not None:
            error = Unavailable if refusal.temporary else RequestRefused
            raise error(0, refusal.reason, refusal.message)
        times = (plan.wake_at, await self._reserve(job, optional, memory))
        return min(((time - self.clock()).total_seconds() for time in times if time), default=None)

    def _plan(self, job: PyTorchJob, memory: _Memory) -> Plan:
        now = self.clock()
        seen = replace(
            self.caches.observe(job, now, memory.refusal, memory.status_due),
            nodes=self.nodes.known(now),
            cluster=self.cluster.known(now),
            namespace=self.namespaces.known(job.metadata.namespace, now),
            reported=memory.reported,
            report=self.coordinator.report(job.metadata.uid) if self.coordinator else None,
            postponed=memory.pace.postponed(now),
            reserved=memory.reserved,
        )
        plan = make_plan(seen)
        if not plan.namespace:  # else it is not known yet which pods have the agent
            self._update_coordinator(job.metadata.uid, plan.coordinator)
        if plan.needs:
            self.want(plan.needs)
        if memory.reason != plan.reason:
            memory.reason = plan.reason
            logger.info("%s/%s: %s", job.metadata.namespace, job.metadata.name, plan.reason)
        return plan

    async def _reserve(self, job: PyTorchJob, writes: list[CreateReserve], memory: _Memory) -> datetime | None:
        """Create reserve pods, after the status; returns when to try those again that were refused."""
        for number, write in enumerate(writes):
            refusal = await self.applier.write(job, [write])
            now = self.clock()
            if refusal is not None:
                for rest in writes[number:]:
                    memory.pace.refused(rest.body["metadata"]["name"], now)
                self._send(job, reserves.refused(refusal.message, REFUSED.total_seconds() / 60))
                return now + REFUSED
            memory.pace.created(write.body["metadata"]["name"], now)
            self._send(job, write.event)
        return None

    def _update_coordinator(self, uid: str, update: CoordinatorUpdate) -> None:
        if self.coordinator is not None:
            self.coordinator.apply(uid, update)

    def _after(self, job: PyTorchJob, plan: Plan, refusal: Refusal | None, memory: _Memory) -> Plan:
        """Return what to publish after the writes: the plan as it is, or the plan with the API server's refusal.

        A new refusal, for example by a quota, becomes a warning event here and a condition in `plan/job_status.py`.
        """
        if refusal == memory.refusal:
            return plan if refusal is None else replace(plan, events=())
        events = plan.events
        if refusal is not None:
            events = () if refusal.temporary else (Event(refusal.reason, refusal.message, EventType.WARNING),)
        return replace(self._plan(job, replace(memory, refusal=refusal)), events=events)

    async def _publish(self, job: PyTorchJob, plan: Plan, refusal: Refusal | None, memory: _Memory) -> Plan:
        """Write the status, then send the events; a status that was not written leaves the memory unchanged."""
        plan = self._after(job, plan, refusal, memory)
        if plan.status is not None:
            await self.applier.patch_status(job, plan.status)
        memory.refusal, memory.status_due, memory.reported = refusal, plan.status_due, plan.reported
        for event in (*plan.pod_events, *plan.events):
            self._send(job, event)
        self.lost(job.metadata.namespace, plan.lost)
        return plan

    def _send(self, job: PyTorchJob, event: Event) -> None:
        meta = job.metadata
        about = Involved(names.API_VERSION, names.KIND, meta.namespace, meta.name, meta.uid)
        self.recorder.event(about, event.type, event.reason, event.message)
