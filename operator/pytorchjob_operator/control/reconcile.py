"""One job at a time, again and again: observe, plan, apply; then status; then events.

The order is the contract: children before the status that speaks of them, events only for what has been written. It
decides nothing itself; a crash at any point leaves what the next observation explains.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from pytorchjob_operator import names
from pytorchjob_operator.control.apply import Applier
from pytorchjob_operator.control.caches import Caches
from pytorchjob_operator.control.nodes import Nodes
from pytorchjob_operator.coordinator_update import CoordinatorUpdate, Forget
from pytorchjob_operator.errors import Refused
from pytorchjob_operator.kube.recorder import Involved, Recorder
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import Cause, ChildKind, EventType
from pytorchjob_operator.observed import Refusal, ReportedEvent
from pytorchjob_operator.plan import Plan, make_plan
from pytorchjob_operator.plan.writes import Event
from pytorchjob_operator.report import Report

logger = logging.getLogger(__name__)

SOON = 0.05
"""Seconds until the next look after somebody else changed the job: its newest version is on its way."""

FENCED = 1.0
"""Seconds until the next look while the lead is in doubt; nothing is lost by then, and nothing is asked."""


class Coordinator(Protocol):
    """The coordinator, as far as the reconciler needs it: reports come in, updates go out."""

    def report(self, uid: str) -> Report | None:
        """Return how a job's rounds stand; None if the coordinator does not know the job."""

    def apply(self, uid: str, update: CoordinatorUpdate) -> None:
        """Apply what a plan decided about a job."""


@dataclass
class _Memory:
    """What one look at a job leaves for the next; losing it costs a repeated line or event, an early status write."""

    reason: str = ""
    refusal: Refusal | None = None
    status_due: datetime | None = None
    reported: frozenset[ReportedEvent] = frozenset()


@dataclass
class Reconciler:
    """Brings jobs from what is observed to what they want."""

    caches: Caches
    applier: Applier
    recorder: Recorder
    clock: Callable[[], datetime]
    nodes: Nodes
    want: Callable[[frozenset[ChildKind]], None] = lambda kinds: None
    """Told which kinds of children a plan would need to see and cannot."""
    lost: Callable[[str, tuple[Cause, ...]], None] = lambda namespace, causes: None
    """Told why pods of a namespace were taken away."""
    coordinator: Coordinator | None = None
    _memories: dict[str, _Memory] = field(default_factory=dict)

    async def __call__(self, uid: str) -> float | None:
        """Reconcile one job once; returns the seconds until the next look that it needs, None for no such time.

        Raises an ApiError when it has to be tried again, with back-off: Refused once the status shows why.
        """
        job = self.caches.jobs.get(uid)
        if job is None:
            self._memories.pop(uid, None)
            self._update_coordinator(uid, Forget())
            return None
        if not self.applier.may_write():
            return FENCED
        memory = self._memories.setdefault(uid, _Memory())
        plan = self._plan(job, memory)
        if plan.nodes:
            await self.nodes.read(plan.nodes, self.clock())
            plan = self._plan(job, memory)
        if plan.writes and job.status.conditions and not await self.applier.confirm(job):
            return SOON
        refusal = await self.applier.write(job, plan.writes) if plan.writes else None
        plan = await self._publish(job, plan, refusal, memory)
        if refusal is not None:
            raise Refused(0, refusal.reason, refusal.message)
        return (plan.wake_at - self.clock()).total_seconds() if plan.wake_at else None

    def _plan(self, job: PyTorchJob, memory: _Memory) -> Plan:
        now = self.clock()
        seen = self.caches.observe(job, now, memory.refusal, memory.status_due)
        report = self.coordinator.report(job.metadata.uid) if self.coordinator else None
        plan = make_plan(replace(seen, nodes=self.nodes.known(now), reported=memory.reported, report=report))
        self._update_coordinator(job.metadata.uid, plan.coordinator)
        if plan.needs:
            self.want(plan.needs)
        if memory.reason != plan.reason:
            memory.reason = plan.reason
            logger.info("%s/%s: %s", job.metadata.namespace, job.metadata.name, plan.reason)
        return plan

    def _update_coordinator(self, uid: str, update: CoordinatorUpdate) -> None:
        if self.coordinator is not None:
            self.coordinator.apply(uid, update)

    def _after(self, job: PyTorchJob, plan: Plan, refusal: Refusal | None, memory: _Memory) -> Plan:
        """What is left to say once the writes went out: as planned, or what the API server would not take."""
        if refusal == memory.refusal:
            return plan if refusal is None else replace(plan, events=())
        reported = plan.events if refusal is None else (Event(refusal.reason, refusal.message, EventType.WARNING),)
        return replace(self._plan(job, replace(memory, refusal=refusal)), events=reported)

    async def _publish(self, job: PyTorchJob, plan: Plan, refusal: Refusal | None, memory: _Memory) -> Plan:
        """Status, then events; what could not be written is not remembered as told."""
        plan = self._after(job, plan, refusal, memory)
        if plan.status is not None:
            await self.applier.patch_status(job, plan.status)
        memory.refusal, memory.status_due, memory.reported = refusal, plan.status_due, plan.reported
        meta = job.metadata
        about = Involved(names.API_VERSION, names.KIND, meta.namespace, meta.name, meta.uid)
        for event in (*plan.pod_events, *plan.events):
            self.recorder.event(about, event.type, event.reason, event.message)
        self.lost(meta.namespace, plan.lost)
        return plan
