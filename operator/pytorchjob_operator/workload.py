"""A Workload of Kueue, as far as decisions need it: what the queue has decided about a job, or a part of it. Pure.

Source of the objects, their reasons and the duties of a Workload's owner: `apis/kueue/v1beta2/workload_types.go` and
`pkg/controller/jobframework/reconciler.go` of Kueue 0.19.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pytorchjob_operator.names import Reason

Json = Mapping[str, Any]

_LONGEST = 1024
"""Characters that are kept of what Kueue writes."""
_REQUEUED_AT_ONCE = ("Preempted", "NodeFailures")
"""Reasons of an eviction after which the Workload is in the queue again at once; for the others Kueue decides."""


_WAITS_FOR = {
    "Pending": Reason.QUEUE_NO_QUOTA,
    "WaitingForQuota": Reason.QUEUE_NO_QUOTA,
    "WaitingForPreemptedWorkloads": Reason.QUEUE_NO_QUOTA,
    "ExceedsMaxQuota": Reason.QUEUE_TOO_SMALL,
    "NoMatchingFlavor": Reason.QUEUE_NO_FLAVOR,
    "TopologyPlacementFailed": Reason.QUEUE_NO_TOPOLOGY,
    "Inadmissible": Reason.QUEUE_MISSING,
    "Misconfigured": Reason.QUEUE_MISSING,
    "Suspended": Reason.QUEUE_STOPPED,
}
"""By the reason of QuotaReserved. Without its gate UnadmittedWorkloadsObservability, Kueue has Pending and Inadmissible
only: the first one also stands for a flavor or a topology, the second one for a stopped queue.
"""


class Standing(StrEnum):
    """Where a Workload stands."""

    QUEUED = "Queued"
    RESERVED = "Reserved"
    """It has quota, and waits for admission checks."""
    ADMITTED = "Admitted"
    EVICTED = "Evicted"
    """Its pods have to go. It has quota until its owner reports that they are gone."""
    FINISHED = "Finished"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What Kueue has assigned to the pods of one pod set."""

    flavors: tuple[str, ...] = ()
    """Names of ResourceFlavors."""
    topology: bool = False
    """Whether Kueue chooses the node of each pod, and removes the pods' scheduling gate then."""
    updates: tuple[Json, ...] = ()
    """What admission checks add to the pods: labels, annotations, nodeSelector, tolerations."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What a Workload says."""

    standing: Standing = Standing.QUEUED
    reserved: bool = False
    """Whether it has quota."""
    active: bool = True
    """False: somebody holds it back (`spec.active`)."""
    queue: str = ""
    priority: int | None = None
    ready: bool | None = None
    """The condition PodsReady; None: nobody has set it."""
    reason: str = ""
    """Why it is not admitted: the reason of the condition that says so."""
    message: str = ""
    reclaimable: Mapping[str, int] = field(default_factory=dict)
    """Pods by pod set whose quota has been given back."""
    assignments: Mapping[str, Assignment] = field(default_factory=dict)

    @classmethod
    def from_api(cls, obj: Json) -> "Workload":
        """Read an API object; what is missing or malformed is left out."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        conditions = {str(each.get("type")): each for each in status.get("conditions") or ()}
        standing = _standing(conditions)
        said = conditions.get("Evicted" if standing is Standing.EVICTED else "QuotaReserved") or {}
        if standing is Standing.RESERVED:
            said = conditions.get("Admitted") or {}
        ready = conditions.get("PodsReady")
        return cls(
            standing=standing,
            reserved=_holds(conditions, "QuotaReserved"),
            active=spec.get("active") is not False,
            queue=str(spec.get("queueName") or ""),
            priority=spec.get("priority"),
            ready=None if ready is None else ready.get("status") == "True",
            reason=str(said.get("reason") or "")[:_LONGEST],
            message=str(said.get("message") or "")[:_LONGEST],
            reclaimable={str(each["name"]): int(each["count"]) for each in status.get("reclaimablePods") or ()},
            assignments=_assignments(status),
        )

    @property
    def waits_for(self) -> Reason:
        """Why its pods may not exist; without a meaning once it is admitted."""
        if not self.active:
            return Reason.QUEUE_HELD
        match self.standing:
            case Standing.EVICTED:
                return Reason.QUEUE_EVICTED
            case Standing.RESERVED:
                return Reason.QUEUE_CHECKS
            case Standing.QUEUED | Standing.ADMITTED | Standing.FINISHED:
                return _WAITS_FOR.get(self.reason, Reason.QUEUE_WAITS)


class WorkloadCondition(NamedTuple):
    """A condition that the owner of a Workload sets."""

    type: str
    status: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WorkloadReport:
    """What the owner of a Workload reports about its pods."""

    conditions: tuple[WorkloadCondition, ...] = ()
    releases: bool = False
    """Its pods are gone: its quota is free."""
    reclaimable: Mapping[str, int] | None = None


def released(workload: Workload) -> WorkloadReport:
    """Return the report that the pods of an evicted Workload are gone."""
    return WorkloadReport(
        (
            WorkloadCondition("QuotaReserved", False, "Pending", workload.message),
            WorkloadCondition("Admitted", False, "NoReservation", "The workload has no reservation"),
            WorkloadCondition("Requeued", workload.reason in _REQUEUED_AT_ONCE, workload.reason, workload.message),
        ),
        releases=True,
    )


def reported(live: Json, report: WorkloadReport, at: datetime) -> dict[str, Any]:
    """Return the object with this report in its status."""
    now = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = dict(live.get("status") or {})
    known = {str(each.get("type")): each for each in status.get("conditions") or ()}
    generation = (live.get("metadata") or {}).get("generation") or 0
    for each in report.conditions:
        before = known.get(each.type) or {}
        state = "True" if each.status else "False"
        changed = before.get("status") != state
        known[each.type] = {
            "type": each.type,
            "status": state,
            "reason": each.reason,
            "message": each.message,
            "observedGeneration": generation,
            "lastTransitionTime": now if changed else before.get("lastTransitionTime", now),
        }
    status["conditions"] = [*known.values()]
    if report.releases:
        status.pop("admission", None)
        status.pop("reclaimablePods", None)
    if report.reclaimable is not None:
        status["reclaimablePods"] = [{"name": name, "count": count} for name, count in report.reclaimable.items()]
    return {**live, "status": status}


def _standing(conditions: Mapping[str, Json]) -> Standing:
    if _holds(conditions, "Finished"):
        return Standing.FINISHED
    reserved = _holds(conditions, "QuotaReserved")
    if not reserved:
        return Standing.QUEUED
    if _holds(conditions, "Evicted"):
        return Standing.EVICTED
    return Standing.ADMITTED if _holds(conditions, "Admitted") else Standing.RESERVED


def _holds(conditions: Mapping[str, Json], kind: str) -> bool:
    return (conditions.get(kind) or {}).get("status") == "True"


def _assignments(status: Json) -> dict[str, Assignment]:
    admission = status.get("admission") or {}
    updates = [each for check in status.get("admissionChecks") or () for each in check.get("podSetUpdates") or ()]
    return {
        str(each.get("name")): Assignment(
            tuple(sorted({str(name) for name in (each.get("flavors") or {}).values()})),
            bool(each.get("topologyAssignment")),
            tuple(update for update in updates if update.get("name") == each.get("name")),
        )
        for each in admission.get("podSetAssignments") or ()
    }


@dataclass(frozen=True, slots=True)
class Placement:
    """What is added to a pod so that it runs where its quota is."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Json] = ()
    gates: Sequence[str] = ()

    def into(self, pod: Json) -> dict[str, Any]:
        """Return the pod with it; what the pod has already stays."""
        meta, spec = dict(pod["metadata"]), dict(pod["spec"])
        for key, given in (("labels", self.labels), ("annotations", self.annotations)):
            if given:
                meta[key] = {**given, **(meta.get(key) or {})}
        if self.node_selector:
            spec["nodeSelector"] = {**self.node_selector, **(spec.get("nodeSelector") or {})}
        known = spec.get("tolerations") or []
        if new := [each for each in self.tolerations if each not in known]:
            spec["tolerations"] = [*known, *new]
        if self.gates:
            spec["schedulingGates"] = [*(spec.get("schedulingGates") or ()), *({"name": each} for each in self.gates)]
        return {**pod, "metadata": meta, "spec": spec}


def placement(assignment: Assignment, flavors: Mapping[str, Json], name: str, pod_set: str) -> Placement:
    """Return the placement of a pod by its assignment; `flavors`: the ResourceFlavors; `name`: the Workload's."""
    found = [(flavors.get(each) or {}).get("spec") or {} for each in assignment.flavors]
    selectors = [each.get("nodeLabels") or {} for each in found]
    selectors += [each.get("nodeSelector") or {} for each in assignment.updates]
    tolerations = [each for source in (*found, *assignment.updates) for each in source.get("tolerations") or ()]
    labels = {key: value for each in assignment.updates for key, value in (each.get("labels") or {}).items()}
    notes = {key: value for each in assignment.updates for key, value in (each.get("annotations") or {}).items()}
    if assignment.topology:
        labels[LABEL_POD_SET] = pod_set
        notes[ANNOTATION_WORKLOAD] = name
    return Placement(
        labels,
        notes,
        {key: value for each in selectors for key, value in each.items()},
        tolerations,
        (GATE_TOPOLOGY,) if assignment.topology else (),
    )


LABEL_POD_SET = "kueue.x-k8s.io/podset"
ANNOTATION_WORKLOAD = "kueue.x-k8s.io/workload"
GATE_TOPOLOGY = "kueue.x-k8s.io/topology"
