"""A plan as a value: the writes in their order, the status, the events, the time of the next pass, and the reason.

Applying any prefix of the writes and planning again leads to the same end: no write depends on knowledge that only this
plan has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pytorchjob_operator.coordinator_update import CoordinatorUpdate, Forget
from pytorchjob_operator.model import JobStatus
from pytorchjob_operator.names import AgentSource, ChildKind, EventType, LossCause
from pytorchjob_operator.observed import ClusterObject, ReportedEvent
from pytorchjob_operator.workload import WorkloadReport

Body = Mapping[str, Any]


@dataclass(frozen=True)
class CreatePod:
    """POST this pod."""

    body: Body


@dataclass(frozen=True)
class CreateReserve:
    """POST this reserve pod, after all other writes. A refusal is no problem of the job."""

    body: Body
    event: "Event"
    """Sent once it is created."""


@dataclass(frozen=True)
class DeletePod:
    """DELETE this pod, and only this one: the uid is a precondition."""

    name: str
    uid: str
    reason: str
    force: bool = False
    """Do not wait until the kubelet reports the end of the pod's processes: it never will."""


@dataclass(frozen=True)
class CreateChild:
    """POST this child."""

    kind: ChildKind
    body: Body
    adopts: bool = False
    """An object of this name that nobody controls was made for this job: it becomes the child."""


@dataclass(frozen=True)
class UpdateChild:
    """Write these labels, annotations and fields of `spec` into the child with this uid; its other fields stay."""

    kind: ChildKind
    uid: str
    body: Body


@dataclass(frozen=True)
class DeleteChild:
    """DELETE this child; the uid is a precondition."""

    kind: ChildKind
    name: str
    uid: str


@dataclass(frozen=True)
class ReportWorkload:
    """Write this report into the status of the Workload with this uid."""

    name: str
    uid: str
    report: WorkloadReport
    at: datetime


@dataclass(frozen=True)
class DeleteJob:
    """DELETE the job itself; the garbage collector takes its children. The uid is a precondition."""

    name: str
    uid: str


Write = CreateChild | CreatePod | CreateReserve | UpdateChild | ReportWorkload | DeletePod | DeleteChild | DeleteJob


@dataclass(frozen=True)
class Event:
    """An event for `kubectl describe`, sent after the writes succeeded."""

    reason: str
    """One of `names.Reason`, or the reason that the scheduler or the kubelet gives for a pod's problem."""
    message: str
    type: EventType = EventType.NORMAL


@dataclass(frozen=True, slots=True)
class AgentUse:
    """Whether the operator puts the agent into a job's pods, and what decides it."""

    injects: bool
    source: AgentSource


@dataclass(frozen=True)
class Plan:
    """One decision about one job."""

    reason: str
    writes: tuple[Write, ...] = ()
    status: JobStatus | None = None
    """The new status, or None to leave the stored one alone."""
    events: tuple[Event, ...] = ()
    status_due: datetime | None = None
    """When to write a status that this plan postpones; the next observation contains this time."""
    wake_at: datetime | None = None
    """Plan again at this time at the latest, even without events."""

    needs: frozenset[ChildKind] = frozenset()
    """Kinds of children that this job needs and that cannot be read: plan again once they can."""
    pod_events: tuple[Event, ...] = ()
    """Events of single pods, true even if the writes fail."""
    reported: frozenset[ReportedEvent] = frozenset()
    """What has been reported about single pods once `pod_events` are sent; the next observation contains it."""
    lost: tuple[LossCause, ...] = ()
    """Causes of lost pods that are not counted yet, one for each pod."""
    coordinator: CoordinatorUpdate = field(default_factory=Forget)
    """What the coordinator must know about the job now, also when there is nothing to write."""
    reserved: Mapping[str, str] = field(default_factory=dict)
    """The node that the next pod of a missing replica prefers, by the pod's name; the next observation contains it."""
    nodes: frozenset[str] = frozenset()
    """Names of nodes whose state is missing in the observation: plan again with it."""
    agent: AgentUse | None = None
    """None: the job has ended, or is not ours."""
    cluster: frozenset[ClusterObject] = frozenset()
    """Objects of the cluster that are missing in the observation: plan again with them."""
    namespace: bool = False
    """The state of the job's namespace is missing in the observation: plan again with it."""

    @property
    def empty(self) -> bool:
        """Nothing to send."""
        return self.status is None and not (self.writes or self.events or self.pod_events)


def manifests(plan: Plan) -> list[dict[str, Any]]:
    """Return the objects that the plan creates, as `kubectl apply` takes them."""
    return [dict(write.body) for write in plan.writes if isinstance(write, CreateChild | CreatePod)]
