"""A plan as a value: what to write, in which order, which status, which events, when to look again, and why.

Applying any prefix of the writes and planning again leads to the same end: no write depends on one that is remembered
only here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pytorchjob_operator.coordinator_update import CoordinatorUpdate, Forget
from pytorchjob_operator.model import JobStatus
from pytorchjob_operator.names import Cause, ChildKind, EventType
from pytorchjob_operator.observed import ReportedEvent

Body = Mapping[str, Any]


@dataclass(frozen=True)
class CreatePod:
    """POST this pod."""

    body: Body


@dataclass(frozen=True)
class DeletePod:
    """DELETE this pod, and only this one: the uid is a precondition."""

    name: str
    uid: str
    reason: str
    force: bool = False
    """Do not wait for the kubelet to tell that its processes have ended: it never will."""


@dataclass(frozen=True)
class CreateChild:
    """POST this child."""

    kind: ChildKind
    body: Body


@dataclass(frozen=True)
class UpdateChild:
    """Put these labels, annotations and fields of `spec` into the child that has this uid; what else it has stays."""

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
class DeleteJob:
    """DELETE the job itself; the garbage collector takes its children. The uid is a precondition."""

    name: str
    uid: str


Write = CreateChild | CreatePod | UpdateChild | DeletePod | DeleteChild | DeleteJob


@dataclass(frozen=True)
class Event:
    """Something that a person should read in `kubectl describe`, sent after the writes went through."""

    reason: str
    """One of `names.Reason`, or what the scheduler or the kubelet says is wrong with a pod."""
    message: str
    type: EventType = EventType.NORMAL


@dataclass(frozen=True)
class Plan:
    """One decision about one job."""

    reason: str
    writes: tuple[Write, ...] = ()
    status: JobStatus | None = None
    """The new status, or None to leave the stored one alone."""
    events: tuple[Event, ...] = ()
    status_due: datetime | None = None
    """When a status that this plan puts off is to be written; the next observation carries it."""
    wake_at: datetime | None = None
    """Plan again at this time at the latest, also if nothing happens."""

    needs: frozenset[ChildKind] = frozenset()
    """Kinds of children that this job may have and that could not be seen: look again once they can."""
    pod_events: tuple[Event, ...] = ()
    """Events of single pods, true whatever becomes of the writes."""
    reported: frozenset[ReportedEvent] = frozenset()
    """What has been told of single pods once the news are out; the next observation carries it."""
    lost: tuple[Cause, ...] = ()
    """Why pods are going that nobody has counted yet, one for each."""
    coordinator: CoordinatorUpdate = field(default_factory=Forget)
    """What the coordinator must know about the job now, also when there is nothing to write."""
    nodes: frozenset[str] = frozenset()
    """Names of nodes whose state this plan lacks: plan again with it."""

    @property
    def empty(self) -> bool:
        """Nothing to send."""
        return self.status is None and not (self.writes or self.events or self.pod_events)


def manifests(plan: Plan) -> list[dict[str, Any]]:
    """The objects that the plan creates, as `kubectl apply` would take them."""
    return [dict(write.body) for write in plan.writes if isinstance(write, CreateChild | CreatePod)]
