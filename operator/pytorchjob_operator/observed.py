"""The input of a plan: one frozen snapshot of a job and its children.

The only place where API objects become values. A pod is reduced to the few fields that decisions need, because the
cache holds thousands of pods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from sys import intern
from typing import Any, NamedTuple

from pytorchjob_agent.contract.coordinator_endpoint import COORDINATOR
from pytorchjob_operator import names
from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ChildKind, LossCause, ReplicaType
from pytorchjob_operator.node import Node, Toleration, read_tolerations
from pytorchjob_operator.node import NodeHealth as NodeHealth
from pytorchjob_operator.node import NodeState as NodeState
from pytorchjob_operator.pod_threat import find_threat
from pytorchjob_operator.problem import Crash, find_cause, find_crash, find_problem, read_time
from pytorchjob_operator.problem import PodProblem as PodProblem
from pytorchjob_operator.workload import Workload

_MAX_INDEX = 1_000_000
"""Any client may write a label: an index beyond this does not belong to a replica."""
_MAX_ADDRESSES = 4
_MAX_WORD = 64
_MAX_SENTENCE = 1024
"""Most characters that are kept of what other controllers write."""


class ClusterKind(StrEnum):
    """The kinds of small objects of the whole cluster that plans ask for; the values are their `kind`."""

    RESOURCE_FLAVOR = "ResourceFlavor"
    WORKLOAD_PRIORITY_CLASS = "WorkloadPriorityClass"
    PRIORITY_CLASS = "PriorityClass"


class ClusterObject(NamedTuple):
    """An object of the whole cluster."""

    kind: ClusterKind
    name: str
    """Of a PriorityClass also empty: the cluster's default."""


class PodPhase(StrEnum):
    """`status.phase` of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


ReportedEvent = tuple[str, str]
"""An event that has been reported for a pod: the pod's uid, and the event's reason."""


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
    ready: bool = False
    """Its condition Ready. It is False while a container starts again, and once the pod's node is lost."""
    ready_since: datetime | None = None
    """Since when it is ready; None if the pod does not report a time."""
    exit_code: int | None = None
    """Exit code of container `pytorch`; None while it runs, and for an evicted pod that never had one."""
    restarts: int = 0
    """Restarts of its containers by the kubelet, init containers too (v1)."""
    created_at: datetime | None = None
    problem: PodProblem | None = None
    """Why it does not run, or why it was lost, as the scheduler or the kubelet reports it; None without a problem."""
    cause: LossCause | None = None
    """Why it was lost, once it has failed or is being deleted; also once its main container has failed."""
    crash: Crash | None = None
    """The last exit of container `pytorch`, if that was an error soon after its start."""
    node: str = ""
    """Where it runs; empty until it is scheduled."""
    zone: str = ""
    """The zone by its own label; empty: unknown."""
    deleted_at: datetime | None = None
    """When its grace period ends; None unless it is being deleted, and once only a finalizer keeps it."""
    anonymous: bool = False
    """Whether the job's Service has no name for it, as for pods of v1: only its own Service leads to it."""
    without_coordinator: bool = False
    """Whether it was created without the coordinator's endpoint."""
    injected: bool = False
    """Whether the operator has put the agent into it."""
    addresses: tuple[str, ...] = ()
    """Its IP addresses, those of the node with hostNetwork; empty until the kubelet reports them."""
    tolerations: tuple[Toleration, ...] = ()
    threat: str = ""
    """Why it may be lost soon, by its own status: a clause without a subject; empty if nothing is known."""
    grouped: bool = False
    """Whether it is in a group of Kubernetes' own gang scheduling (`spec.schedulingGroup`)."""
    reserve_for: str = ""
    """The pod for which this reserve pod keeps a place; empty for every other pod."""

    @classmethod
    def from_api(cls, obj: dict[str, Any]) -> "Pod":
        """Read an API object; missing or malformed labels are ignored and never raise."""
        meta, status = obj["metadata"], obj.get("status") or {}
        labels = meta.get("labels") or {}
        statuses = status.get("containerStatuses") or ()
        all_statuses = (*(status.get("initContainerStatuses") or ()), *statuses)
        phase, deleting = _phase(status.get("phase")), bool(meta.get("deletionTimestamp"))
        lost = phase is PodPhase.FAILED or (deleting and phase is not PodPhase.SUCCEEDED)
        exit_code, ready = _exit_code(statuses), _ready(status.get("conditions") or ())
        variables = _variables(obj.get("spec"))
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
            ready=ready is not None,
            ready_since=read_time((ready or {}).get("lastTransitionTime")),
            exit_code=exit_code,
            restarts=sum(int(container.get("restartCount") or 0) for container in all_statuses),
            created_at=read_time(meta.get("creationTimestamp")),
            problem=None if phase is PodPhase.SUCCEEDED else find_problem(obj, failed=lost, deleting=deleting),
            cause=find_cause(status, deleting=deleting) if lost or exit_code else None,
            crash=None if phase is PodPhase.SUCCEEDED else find_crash(status),
            node=str((obj.get("spec") or {}).get("nodeName") or ""),
            zone=intern(str(labels.get(names.LABEL_ZONE) or "")),
            deleted_at=read_time(meta.get("deletionTimestamp")) if meta.get("deletionGracePeriodSeconds") else None,
            anonymous=_anonymous(obj.get("spec"), labels.get(names.LABEL_JOB_NAME)),
            without_coordinator=bool(obj.get("spec")) and COORDINATOR not in variables,
            injected=_injected(obj.get("spec") or {}),
            addresses=_addresses(status),
            tolerations=read_tolerations(obj.get("spec") or {}),
            threat="" if lost or phase is PodPhase.SUCCEEDED else find_threat(status),
            grouped=bool((obj.get("spec") or {}).get("schedulingGroup")),
            reserve_for=_reserve_for(meta["name"], labels),
        )

    @property
    def active(self) -> bool:
        """Running and not being deleted (v1's `active`)."""
        return self.phase is PodPhase.RUNNING and not self.deleting

    @property
    def succeeded(self) -> bool:
        """Every container ended with 0."""
        return self.phase is PodPhase.SUCCEEDED

    @property
    def failed(self) -> bool:
        """Failed, or running while it is deleted: v1 counts a terminating pod as failed."""
        return self.phase is PodPhase.FAILED or (self.phase is PodPhase.RUNNING and self.deleting)


@dataclass(frozen=True, slots=True)
class Child:
    """A child of a job other than a pod: its identity, its owner, and what was written last."""

    kind: ChildKind
    name: str
    namespace: str
    uid: str
    resource_version: int
    owner_uid: str | None
    deleting: bool = False
    replica_type: ReplicaType | None = None
    index: int | None = None
    """The replica's index, for a Service per replica as under v1; None for the job's Service."""
    spec_hash: str = ""
    """The value of `names.ANNOTATION_SPEC_HASH`; empty for a kind that is never updated, and for a child of v1."""
    phase: str = ""
    """`status.phase` of a PodGroup; empty until its scheduler sets it, and for the other kinds."""
    problem: PodProblem | None = None
    """Why a gang scheduler cannot place it, as the scheduler reports it."""
    workload: Workload | None = None
    """What Kueue has decided; None for the other kinds."""

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
            workload=Workload.from_api(obj) if kind is ChildKind.WORKLOAD else None,
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """A child that the API server refused, with the server's message."""

    reason: names.Reason
    message: str
    temporary: bool = False
    """It ends by itself: the status shows it, no event reports it."""


@dataclass(frozen=True, slots=True)
class CoordinatorAccess:
    """What pods need to reach the coordinator."""

    address: str
    """host:port, as the pods reach it."""
    ca: str = ""
    """The certificates that agents trust, base64 of their DER, one after the other; empty: no TLS."""


class AgentDefault(StrEnum):
    """Whether jobs get the agent that do not mention it."""

    OFF = "Off"
    INJECT = "Inject"


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """What decisions need to know of a job's namespace."""

    agent: AgentDefault | None = None
    """What its label says about jobs that do not mention the agent; None: nothing that is known."""

    @classmethod
    def from_api(cls, obj: dict[str, Any]) -> "NamespaceState":
        """Read an API object."""
        label = (obj["metadata"].get("labels") or {}).get(names.LABEL_AGENT)
        return cls(next((each for each in AgentDefault if each.value == label), None))


@dataclass(frozen=True, slots=True)
class Options:
    """The operator's settings for the objects that it creates."""

    cluster_domain: str = "cluster.local"
    stuck_pod_seconds: int = 60
    """How long a pod may stay terminating on a dead node after its grace period; 0: for ever."""
    accelerators: tuple[str, ...] = ()
    """Resource names of devices besides the known ones; a `*` at the end matches anything."""
    gang_scheduler: str = ""
    """Gang scheduler of jobs that name none, as v1's --gang-scheduler-name; empty or `none`: no gang scheduling."""
    replica_services: bool = False
    """Whether each replica also gets its own Service, as under v1, and replicas use its name to reach each other."""
    legacy: bool = False
    """Whether the job has pods of v1. Set by `plan/adoption`, not by a setting."""
    coordinator: CoordinatorAccess | None = None
    """The coordinator of the pods' agents; None: torch's own rendezvous."""
    pods_per_pass: int | None = None
    """The most pods that one pass creates, so that a large job does not delay others; None: no limit."""
    early_exits: int = 0
    """The job fails once a replica has ended this often in a row with the same code, each time soon after its start; 0:
    never, which is v1's behaviour. A local run sets it."""
    agent_image: str = ""
    """The image whose agent `spec.agent.inject` installs in pods; empty: injection is not possible."""
    agent_default: AgentDefault = AgentDefault.OFF
    """What `spec.agent.inject` is for jobs that do not set it."""
    kueue: bool = False
    """Whether Kueue leaves the Workloads of PyTorchJobs to this operator."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that a decision about a job may depend on."""

    job: PyTorchJob
    now: datetime
    pods: tuple[Pod, ...] = ()
    children: tuple[Child, ...] = ()
    unserved: Mapping[ChildKind, str] = field(default_factory=dict)
    """Kinds of children that cannot be read or created now, with the reason: their absence means nothing."""
    refusal: Refusal | None = None
    """Why the last attempt to create a child failed; None after a successful attempt."""
    status_due: datetime | None = None
    """`status_due` of the previous plan, so that a postponed write is not postponed again."""
    reported: frozenset[ReportedEvent] = frozenset()
    """`reported` of the previous plan, so that nothing is reported twice for a pod."""
    options: Options = field(default_factory=Options)
    nodes: Mapping[str, NodeState] = field(default_factory=dict)
    """The nodes that a plan asked for (`Plan.nodes`), by name; other nodes have not been read."""
    cluster: Mapping[ClusterObject, Mapping[str, Any] | None] = field(default_factory=dict)
    """The objects that a plan asked for (`Plan.cluster`); None: it does not exist, or cannot be read."""
    namespace: NamespaceState | None = None
    """The job's namespace, if a plan asked for it (`Plan.namespace`)."""
    marked: Mapping[str, Node] = field(default_factory=dict)
    """The nodes of the job's pods that may lose their pods, by name, if the operator may watch nodes."""
    zones: Mapping[str, str] = field(default_factory=dict)
    """The zones of the job's nodes that have one, by the node's name, if the operator may watch nodes."""
    report: Report | None = None
    """The coordinator's report about the job's rounds; None without the coordinator, and before its first report."""
    postponed: Mapping[str, datetime] = field(default_factory=dict)
    """Pods that must not be created before a time (`control/pace`), by name."""
    reserved: Mapping[str, str] = field(default_factory=dict)
    """`reserved` of the previous plan: a reserve pod ends before the pod that takes its place is created."""

    def of(self, kind: ChildKind) -> tuple[Child, ...]:
        """Return the children of a kind."""
        return tuple(child for child in self.children if child.kind is kind)


def controller_uid(meta: dict[str, Any]) -> str | None:
    """Return the uid of the controlling owner; an ownerReference without `controller` does not count."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid"))
    return None


def _ready(conditions: Any) -> dict[str, Any] | None:
    """Return the condition Ready if it is true."""
    true = (condition for condition in conditions if condition.get("status") == "True")
    return next((condition for condition in true if condition.get("type") == "Ready"), None)


def _unschedulable(conditions: Any) -> PodProblem | None:
    """Return a scheduler's newest report that a gang does not fit; Volcano writes conditions in no certain order."""
    reported = {("Unschedulable", "True"), ("PodGroupInitiallyScheduled", "False")}
    found = [condition for condition in conditions if (condition.get("type"), condition.get("status")) in reported]
    if not found:
        return None
    last = max(found, key=lambda condition: str(condition.get("lastTransitionTime") or ""))
    return PodProblem(str(last.get("reason") or "")[:_MAX_WORD], str(last.get("message") or "")[:_MAX_SENTENCE])


def _replica_type(label: object) -> ReplicaType | None:
    return next((role for role in ReplicaType if role.label == label), None)


def _reserve_for(name: str, labels: Mapping[str, Any]) -> str:
    pod = str(labels.get(names.LABEL_RESERVE_FOR) or "")
    return pod if pod and name == names.reserve_name(pod) else ""


def _anonymous(spec: dict[str, Any] | None, job: object) -> bool:
    return bool(spec) and (spec or {}).get("subdomain") != names.service_name(str(job))


def _variables(spec: dict[str, Any] | None) -> frozenset[str]:
    """Return the names of all variables of all containers."""
    containers = (spec or {}).get("containers") or ()
    return frozenset(str(variable.get("name")) for container in containers for variable in container.get("env") or ())


def _injected(spec: dict[str, Any]) -> bool:
    return any(container.get("name") == names.AGENT_INSTALL for container in spec.get("initContainers") or ())


def _addresses(status: dict[str, Any]) -> tuple[str, ...]:
    listed = (str(entry.get("ip") or "") for entry in (status.get("podIPs") or ())[:_MAX_ADDRESSES])
    return tuple(address for address in listed if address) or tuple(filter(None, [str(status.get("podIP") or "")]))


def _index(label: object) -> int | None:
    text = str(label)
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_INDEX))):
        return None
    index = int(text)
    return index if index <= _MAX_INDEX else None


def _phase(text: object) -> PodPhase:
    if not text:
        return PodPhase.PENDING
    return next((phase for phase in PodPhase if phase.value == text), PodPhase.UNKNOWN)


def _exit_code(statuses: Any) -> int | None:
    for status in statuses:
        if status.get("name") == names.CONTAINER:
            terminated = (status.get("state") or {}).get("terminated")
            return int(terminated["exitCode"]) if terminated else None
    return None
