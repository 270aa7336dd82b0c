"""What a plan may look at: one frozen snapshot of a job and its children.

The only place where API objects become values. A pod is cut down to the few fields that decisions need: the cache
holds thousands of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from pytorchjob_agent.contract.coordinator_endpoint import COORDINATOR
from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import Cause, ChildKind, ReplicaType
from pytorchjob_operator.problem import PodProblem as PodProblem
from pytorchjob_operator.problem import find_cause, find_problem
from pytorchjob_operator.report import Report

_MAX_INDEX = 1_000_000
"""A label is anybody's to write: an index beyond this is not one of ours."""
_MAX_WORD = 64
_MAX_SENTENCE = 1024
"""What another controller writes is kept so long at most."""


class PodPhase(StrEnum):
    """`status.phase` of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


ReportedEvent = tuple[str, str]
"""Something that has been told of a pod: its uid, and the reason."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One replica's pod, as far as a decision needs it."""

    name: str
    namespace: str
    uid: str
    resource_version: int
    owner_uid: str | None
    replica_type: ReplicaType | None
    index: int | None
    phase: PodPhase
    deleting: bool = False
    exit_code: int | None = None
    """Exit code of container `pytorch`; None while it runs, and for an evicted pod that never had one."""
    restarts: int = 0
    """Restarts of its containers by the kubelet, init containers too (v1)."""
    created_at: datetime | None = None
    problem: PodProblem | None = None
    """What keeps it from running, or took it away, in the words of the scheduler or the kubelet; None: nothing does."""
    cause: Cause | None = None
    """Why it was lost, once it has failed or somebody deletes it; also once its main container has ended badly."""
    node: str = ""
    """Where it runs; empty until it is scheduled."""
    deleted_at: datetime | None = None
    """When its grace period ends; None while nobody deletes it, and once nothing but a finalizer still holds it."""
    anonymous: bool = False
    """Whether the job's Service has no name for it, as v1 makes pods: only a Service of its own leads to it."""
    without_coordinator: bool = False
    """Whether it was made without a way to the coordinator."""

    @classmethod
    def from_api(cls, obj: dict[str, Any]) -> "Pod":
        """Read an API object; labels that are missing or malformed say nothing, they never raise."""
        meta, status = obj["metadata"], obj.get("status") or {}
        labels = meta.get("labels") or {}
        statuses = status.get("containerStatuses") or ()
        all_statuses = (*(status.get("initContainerStatuses") or ()), *statuses)
        phase, deleting = _phase(status.get("phase")), bool(meta.get("deletionTimestamp"))
        lost = phase is PodPhase.FAILED or (deleting and phase is not PodPhase.SUCCEEDED)
        exit_code = _exit_code(statuses)
        return cls(
            name=meta["name"],
            namespace=meta.get("namespace", ""),
            uid=meta.get("uid", ""),
            resource_version=int(meta.get("resourceVersion") or 0),
            owner_uid=controller_uid(meta),
            replica_type=_replica_type(labels.get(names.LABEL_REPLICA_TYPE)),
            index=_index(labels.get(names.LABEL_REPLICA_INDEX)),
            phase=phase,
            deleting=deleting,
            exit_code=exit_code,
            restarts=sum(int(one.get("restartCount") or 0) for one in all_statuses),
            created_at=_time(meta.get("creationTimestamp")),
            problem=None if phase is PodPhase.SUCCEEDED else find_problem(obj, failed=lost, deleting=deleting),
            cause=find_cause(status, deleting=deleting) if lost or exit_code else None,
            node=str((obj.get("spec") or {}).get("nodeName") or ""),
            deleted_at=_time(meta.get("deletionTimestamp")) if meta.get("deletionGracePeriodSeconds") else None,
            anonymous=_anonymous(obj.get("spec"), labels.get(names.LABEL_JOB_NAME)),
            without_coordinator=_without_coordinator(obj.get("spec")),
        )

    @property
    def active(self) -> bool:
        """Running, and nobody asked it to leave (v1's `active`)."""
        return self.phase is PodPhase.RUNNING and not self.deleting

    @property
    def succeeded(self) -> bool:
        """Every container ended with 0."""
        return self.phase is PodPhase.SUCCEEDED

    @property
    def failed(self) -> bool:
        """Failed, or running on borrowed time: v1 counts a terminating pod as failed."""
        return self.phase is PodPhase.FAILED or (self.phase is PodPhase.RUNNING and self.deleting)


@dataclass(frozen=True, slots=True)
class Child:
    """A child of a job that is no pod: it is there, whose it is, and what was written into it last."""

    kind: ChildKind
    name: str
    namespace: str
    uid: str
    resource_version: int
    owner_uid: str | None
    deleting: bool = False
    replica_type: ReplicaType | None = None
    index: int | None = None
    """Of a Service that stands for one replica, as v1 makes them: which one; None for the job's own."""
    spec_hash: str = ""
    """What `names.ANNOTATION_SPEC_HASH` says; empty for a kind that is never updated, and for a child made by v1."""
    phase: str = ""
    """`status.phase` of a PodGroup; empty until its scheduler has looked at it, and for the other kinds."""
    problem: PodProblem | None = None
    """Why a gang scheduler cannot place it, in its own words."""

    @classmethod
    def from_api(cls, kind: ChildKind, obj: dict[str, Any]) -> "Child":
        """Read an API object of this kind."""
        meta, status = obj["metadata"], obj.get("status") or {}
        labels = meta.get("labels") or {}
        return cls(
            kind=kind,
            name=meta["name"],
            namespace=meta.get("namespace", ""),
            uid=meta.get("uid", ""),
            resource_version=int(meta.get("resourceVersion") or 0),
            owner_uid=controller_uid(meta),
            deleting=bool(meta.get("deletionTimestamp")),
            replica_type=_replica_type(labels.get(names.LABEL_REPLICA_TYPE)),
            index=_index(labels.get(names.LABEL_REPLICA_INDEX)),
            spec_hash=str((meta.get("annotations") or {}).get(names.ANNOTATION_SPEC_HASH, "")),
            phase=str(status.get("phase") or "")[:_MAX_WORD],
            problem=_unschedulable(status.get("conditions") or ()),
        )


class NodeHealth(StrEnum):
    """What a node is good for."""

    READY = "ready"
    NOT_READY = "not ready"
    OUT_OF_SERVICE = "out of service"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeState:
    """What is known of one node."""

    health: NodeHealth
    since: datetime | None = None
    """Since when it has not been ready, in its own words; None where it does not say."""

    @classmethod
    def from_api(cls, obj: dict[str, Any]) -> "NodeState":
        """Read an API object; a node that says nothing of its readiness is unknown."""
        conditions = (obj.get("status") or {}).get("conditions") or ()
        taints = (obj.get("spec") or {}).get("taints") or ()
        ready = next((one for one in conditions if one.get("type") == "Ready"), None)
        if ready is not None and ready.get("status") == "True":
            return cls(NodeHealth.READY)
        if any(one.get("key") == names.TAINT_OUT_OF_SERVICE for one in taints):
            return cls(NodeHealth.OUT_OF_SERVICE)
        if ready is None:
            return cls(NodeHealth.UNKNOWN)
        return cls(NodeHealth.NOT_READY, _time(ready.get("lastTransitionTime")))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A child that the API server would not take, in the server's words."""

    reason: names.Reason
    message: str


@dataclass(frozen=True, slots=True)
class CoordinatorAccess:
    """The way to the coordinator, as pods are told it."""

    address: str
    """host:port, as the pods reach it."""
    key: bytes = field(repr=False)
    """What each pod's token is made from."""
    ca: str = ""
    """Its certificate, base64 of DER; empty: no TLS."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator's own configuration says about the objects that it makes."""

    cluster_domain: str = "cluster.local"
    stuck_pod_seconds: int = 60
    """How long a pod may be terminating on a dead node beyond its grace period; 0: for ever."""
    accelerators: tuple[str, ...] = ()
    """Resource names of devices beside the known ones; a `*` at the end stands for anything."""
    gang_scheduler: str = ""
    """Who places the pods of each job that names nobody, as v1's --gang-scheduler-name; empty or `none`: nobody."""
    replica_services: bool = False
    """Whether each replica gets a Service of its own name too, as under v1, and the replicas know each other by it."""
    legacy: bool = False
    """Whether pods that v1 made are there. Set by `plan/adoption`, not by a person."""
    coordinator: CoordinatorAccess | None = None
    """Where the pods' agents meet; None: they find each other by torch's own ways."""
    agent_image: str = ""
    """The image whose agent `spec.agent.inject` puts into pods; empty: none can be put there."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that one decision about one job may depend on."""

    job: PyTorchJob
    now: datetime
    pods: tuple[Pod, ...] = ()
    children: tuple[Child, ...] = ()
    unserved: Mapping[ChildKind, str] = field(default_factory=dict)
    """Kinds of children that cannot be seen or made now, with the reason: nothing is concluded from their absence."""
    refusal: Refusal | None = None
    """Why the last attempt to create a child failed; None once an attempt went through."""
    status_due: datetime | None = None
    """`status_due` of the plan before this one, so that a write that was put off is not put off again."""
    reported: frozenset[ReportedEvent] = frozenset()
    """`told` of the plan before this one, so that nothing is told twice of a pod."""
    options: Options = field(default_factory=Options)
    nodes: Mapping[str, NodeState] = field(default_factory=dict)
    """The nodes that were asked for (`Plan.nodes`), by name; the others have not been looked at."""
    report: Report | None = None
    """What the coordinator tells of the job's rounds; None for a job that does without, and while nothing is known."""

    def of(self, kind: ChildKind) -> tuple[Child, ...]:
        """The children of one kind."""
        return tuple(one for one in self.children if one.kind is kind)


def controller_uid(meta: dict[str, Any]) -> str | None:
    """The uid of the controlling owner; an ownerReference without `controller` does not count."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid"))
    return None


def _unschedulable(conditions: Any) -> PodProblem | None:
    """The newest condition by which Volcano says that a gang does not fit; it writes them in no certain order."""
    reported = [one for one in conditions if (one.get("type"), one.get("status")) == ("Unschedulable", "True")]
    if not reported:
        return None
    last = max(reported, key=lambda one: str(one.get("lastTransitionTime") or ""))
    return PodProblem(str(last.get("reason") or "")[:_MAX_WORD], str(last.get("message") or "")[:_MAX_SENTENCE])


def _replica_type(label: object) -> ReplicaType | None:
    return next((one for one in ReplicaType if one.label == label), None)


def _anonymous(spec: dict[str, Any] | None, job: object) -> bool:
    return bool(spec) and (spec or {}).get("subdomain") != names.service_name(str(job))


def _without_coordinator(spec: dict[str, Any] | None) -> bool:
    containers = (spec or {}).get("containers") or ()
    reported = (one.get("name") for container in containers for one in container.get("env") or ())
    return bool(spec) and COORDINATOR not in reported


def _index(label: object) -> int | None:
    text = str(label)
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_INDEX))):
        return None
    index = int(text)
    return index if index <= _MAX_INDEX else None


def _phase(text: object) -> PodPhase:
    if not text:
        return PodPhase.PENDING
    return next((one for one in PodPhase if one.value == text), PodPhase.UNKNOWN)


def _time(text: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None
    return time if time is not None and time.tzinfo else None


def _exit_code(statuses: Any) -> int | None:
    for one in statuses:
        if one.get("name") == names.CONTAINER:
            terminated = (one.get("state") or {}).get("terminated")
            return int(terminated["exitCode"]) if terminated else None
    return None
