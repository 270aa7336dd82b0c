"""A job in a queue of Kueue, if Kueue leaves the Workloads of PyTorchJobs to this operator (`externalFrameworks`).

A Workload is what Kueue admits as a whole. The job has one for the pods without which it does not train: all of them,
or the Master and `minReplicas` workers of an elastic job. Each further worker has a Workload of its own, with a lower
priority: Kueue admits and evicts it alone, so the job grows and shrinks under quota and is never suspended for that.
Pods exist only while their Workload is admitted. Its quota is given back once they are gone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pytorchjob_operator import names
from pytorchjob_operator.model import ConditionType, PyTorchJob
from pytorchjob_operator.names import ChildKind, Reason, ReplicaType
from pytorchjob_operator.observed import Child, ClusterKind, ClusterObject, Observed, Pod, PodProblem
from pytorchjob_operator.plan import children, replicas
from pytorchjob_operator.plan.replicas import Replica
from pytorchjob_operator.plan.writes import CreateChild, DeleteChild, ReportWorkload, UpdateChild, Write
from pytorchjob_operator.workload import (
    Placement,
    Standing,
    Workload,
    WorkloadCondition,
    WorkloadReport,
    placement,
    released,
)

_API_VERSION = "kueue.x-k8s.io/v1beta2"
_LABEL_PRIORITY = "kueue.x-k8s.io/priority-class"
_LABEL_MOST_SECONDS = "kueue.x-k8s.io/max-exec-time-seconds"
_LABEL_JOB_UID = "kueue.x-k8s.io/job-uid"
_PROVISIONING = "provreq.kueue.x-k8s.io/"
_TOPOLOGY = {
    "kueue.x-k8s.io/podset-required-topology": "required",
    "kueue.x-k8s.io/podset-preferred-topology": "preferred",
    "kueue.x-k8s.io/podset-unconstrained-topology": "unconstrained",
}
_OF_CONTAINER = ("name", "image", "resources", "restartPolicy", "ports")
_OF_POD = (
    "nodeSelector", "affinity", "tolerations", "priorityClassName", "runtimeClassName", "overhead", "resources",
    "resourceClaims", "topologySpreadConstraints", "schedulerName", "hostNetwork",
)  # fmt: skip
"""What Kueue reads of a pod: its requests, and where it may run. Other parts differ from pod to pod."""


_CHECK_FAILED = "AdmissionCheck"
"""The reason of an eviction by MultiKueue: the job was evicted in the other cluster, or that is lost."""
_UNSAID = {
    Reason.QUEUE_EVICTED: "Kueue has taken back its quota",
    Reason.QUEUE_CHECKS: "admission checks are not ready",
}
"""What a job waits for if Kueue gives no words for it."""


@dataclass(frozen=True, slots=True)
class Part:
    """Replicas that Kueue admits as a whole, and the name of their Workload."""

    name: str
    replicas: tuple[Replica, ...]
    needed: bool
    """Whether the job does not train without them."""


@dataclass(frozen=True, slots=True)
class Queueing:
    """What the queue has decided about a job; without any field: the operator owns no Workload of it."""

    parts: tuple[Part, ...] = ()
    stops: bool = False
    """The job may not have pods."""
    held: frozenset[Replica] = frozenset()
    """Workers that may not have pods, while the job trains."""
    problem: PodProblem | None = None
    """Why the job may not have pods."""
    placements: Mapping[Replica, Placement] = field(default_factory=dict)
    """Where the pods of admitted replicas may run."""
    asks: frozenset[ClusterObject] = frozenset()
    """Objects that have to be read before anything is created."""
    priority: "Priority | None" = None


class Priority(NamedTuple):
    """The priority of a job in its queue."""

    value: int = 0
    reference: Mapping[str, str] | None = None


def queue_of(job: PyTorchJob) -> str:
    """Return the queue that the job names; empty: none."""
    return job.metadata.labels.get(names.LABEL_KUEUE_QUEUE, "")


def owns(seen: Observed) -> bool:
    """Return whether the operator makes the job's Workloads: not if Kueue's own integration has made one."""
    theirs = any(not child.spec_hash for child in seen.of(ChildKind.WORKLOAD))
    return bool(seen.options.kueue and queue_of(seen.job)) and not theirs


def decide(seen: Observed, job: PyTorchJob) -> Queueing:
    """Return what the queue has decided; `job` has its defaults."""
    if not owns(seen):
        return Queueing()
    needed, *others = split = tuple(parts(job))
    if why := seen.unserved.get(ChildKind.WORKLOAD):
        problem = PodProblem(Reason.QUEUE_UNAVAILABLE, f"no pod is created: Kueue's Workloads cannot be used: {why}")
    elif ChildKind.WORKLOAD in seen.unserved:  # not known yet
        problem = PodProblem(Reason.QUEUE_WAITS, f"queue {queue_of(job)}: Kueue's Workloads are not known yet")
    else:
        problem = None
    if problem is not None:  # what trains goes on
        absent = frozenset(replica for part in others for replica in part.replicas if not _pods(seen, part))
        return Queueing(split, not seen.pods, absent, problem)
    priority, asks, unknown = _priority(seen, job)
    found = _found(seen)
    admitted = [part for part in split if _is_admitted(job, part, found.get(part.name))]
    held = frozenset(replica for part in others if part not in admitted for replica in part.replicas)
    placements, missing = _placements(seen, admitted, found)
    stops = needed not in admitted
    return Queueing(
        split,
        stops,
        held,
        unknown or _problem(job, found.get(needed.name)) if stops else None,
        placements,
        asks | missing,
        priority,
    )


def parts(job: PyTorchJob) -> Iterator[Part]:
    """Yield the parts of a job: the one that it needs first, then one for each further worker of an elastic job."""
    elastic, name = job.spec.elastic_policy, _name(job)
    workers = replicas.count(job, ReplicaType.WORKER)
    least = workers if elastic is None or elastic.min_replicas is None else min(elastic.min_replicas, workers)
    wanted = tuple(replicas.wanted(job))
    further = [replica for replica in wanted if replica.type is ReplicaType.WORKER and replica.index >= least]
    yield Part(name, tuple(replica for replica in wanted if replica not in further), needed=True)
    for replica in further:
        yield Part(f"{name}.{replica.type.label}-{replica.index}", (replica,), needed=False)


def _name(job: PyTorchJob) -> str:
    """Return the name of the Workload for what the job needs."""
    return _prebuilt(job) or names.workload_name(job.metadata.name)


def _prebuilt(job: PyTorchJob) -> str:
    """Return the name of the Workload that was made for the job before it; empty: none was."""
    meta = job.metadata
    return meta.annotations.get(names.KUEUE_PREBUILT) or meta.labels.get(names.KUEUE_PREBUILT, "")


def hand_over(seen: Observed, job: PyTorchJob) -> tuple[frozenset[ClusterObject], tuple[Write, ...]]:
    """Return what makes the Workload by which MultiKueue hands the job to another cluster, and what to read for it.

    It is for what the job needs: in the other cluster an elastic job has Workloads of its own for further workers.
    MultiKueue copies the job's status back.
    """
    if not owns(seen) or ChildKind.WORKLOAD in seen.unserved:
        return frozenset(), ()
    needed, child = next(parts(job)), _found(seen).get(_name(job))
    if child is not None and child.deleting:
        return frozenset(), ()
    if job.spec.run_policy.suspend:
        return frozenset(), () if child is None else (DeleteChild(child.kind, child.name, child.uid),)
    state = (child and child.workload) or Workload()
    if child is not None and state.reserved:
        return frozenset(), tuple(_with_quota(seen, job, needed, child, state))
    priority, asks, _ = _priority(seen, job)
    if priority is None:
        return asks, ()
    body = _body(job, needed, priority)
    if child is None:
        return asks, (CreateChild(ChildKind.WORKLOAD, body),)
    return asks, (UpdateChild(child.kind, child.uid, body),) if _differs(child, state, body) else ()


def _with_quota(seen: Observed, job: PyTorchJob, part: Part, child: Child, state: Workload) -> Iterator[Write]:
    """Yield what the owner of a Workload does whose pods are in another cluster, as the copied status shows them."""
    counts = job.status.replica_statuses
    active = any(role.active for role in (counts.master, counts.worker) if role) if counts else False
    if state.standing is Standing.EVICTED:
        if not active or state.reason == _CHECK_FAILED:  # the status of an evicted job there is not copied any more
            yield ReportWorkload(child.name, child.uid, released(state), seen.now)
    elif _size(child.spec_hash) != _size(_hash(job, part)):
        yield DeleteChild(child.kind, child.name, child.uid)
    elif state.standing is Standing.ADMITTED:
        ready = job.status.holds(ConditionType.RUNNING)
        if ready is not bool(state.ready):
            yield ReportWorkload(child.name, child.uid, WorkloadReport((_ready(ready),)), seen.now)


def _ready(ready: bool) -> WorkloadCondition:
    why = ("Started", "All pods run") if ready else ("WaitForRecovery", "A pod was lost, or has not started")
    return WorkloadCondition("PodsReady", ready, *why)


def writes(seen: Observed, job: PyTorchJob, queueing: Queueing) -> Iterator[Write]:
    """Yield what makes the Workloads those of a job that has not ended, and reports about its pods."""
    if not queueing.parts or ChildKind.WORKLOAD in seen.unserved:
        return
    suspended = job.spec.run_policy.suspend
    # A job that may not train holds no quota for further workers.
    parts = [part for part in queueing.parts if not suspended and (part.needed or not queueing.stops)]
    found, wanted = _found(seen), {part.name for part in parts}
    for part in parts:
        child = found.get(part.name)
        if child is not None:
            if not child.deleting:
                yield from _converge(seen, job, part, child, queueing.priority)
        elif part.needed and _prebuilt(job):  # it has its priority
            body = _body(job, part, queueing.priority or Priority())
            yield CreateChild(ChildKind.WORKLOAD, body, adopts=True)
        elif queueing.priority is not None:
            yield CreateChild(ChildKind.WORKLOAD, _body(job, part, queueing.priority))
    for child in found.values():
        if not child.deleting and child.name not in wanted and not _pods_of(seen, child.name):
            yield DeleteChild(child.kind, child.name, child.uid)


def _converge(
    seen: Observed, job: PyTorchJob, part: Part, child: Child, priority: "Priority | None"
) -> Iterator[Write]:
    state = child.workload or Workload()
    if not state.reserved:
        body = None if priority is None else _body(job, part, priority)
        if body is not None and _differs(child, state, body):
            yield UpdateChild(child.kind, child.uid, body)
    elif _size(child.spec_hash) != _size(_hash(job, part)) or state.standing is Standing.FINISHED:
        if not _pods(seen, part):  # Kueue admits it anew, as it is now
            yield DeleteChild(child.kind, child.name, child.uid)
    elif state.standing is Standing.EVICTED:
        if not _pods(seen, part):
            yield ReportWorkload(child.name, child.uid, released(state), seen.now)
    elif state.standing is Standing.ADMITTED and (report := _report(seen, part, state)) is not None:
        yield ReportWorkload(child.name, child.uid, report, seen.now)


def _differs(child: Child, state: Workload, body: Mapping[str, Any]) -> bool:
    """Return whether a Workload without quota is not what it is to be."""
    wanted, spec = body["metadata"]["annotations"][names.ANNOTATION_SPEC_HASH], body["spec"]
    return child.spec_hash != wanted or (state.queue, state.priority) != (spec["queueName"], spec["priority"])


def _report(seen: Observed, part: Part, state: Workload) -> WorkloadReport | None:
    """Return what Kueue does not know of the pods of an admitted Workload."""
    pods = _pods(seen, part)
    ready = len(pods) == len(part.replicas) and all(pod.active or pod.succeeded for pod in pods)
    conditions: tuple[WorkloadCondition, ...] = ()
    if ready is not bool(state.ready):
        conditions = (_ready(ready),)
    done = {
        role.label: sum(pod.succeeded for pod in pods if pod.replica_type is role)
        for role in ReplicaType
        if any(replica.type is role for replica in part.replicas)
    }
    more = any(count > state.reclaimable.get(name, 0) for name, count in done.items())
    if not (conditions or more):
        return None
    given = {name: max(count, state.reclaimable.get(name, 0)) for name, count in done.items()}
    return WorkloadReport(conditions, reclaimable=given if more else None)


def end(seen: Observed) -> Iterator[Write]:
    """Yield the reports that the Workloads of a job that has ended are finished: their quota is free."""
    job = seen.job
    reason = "Succeeded" if job.status.holds(ConditionType.SUCCEEDED) else "Failed"
    for child in _found(seen).values():
        state = child.workload or Workload()
        if not child.deleting and state.standing is not Standing.FINISHED:
            finished = WorkloadCondition("Finished", True, reason, f"The job has {reason.lower()}.")
            yield ReportWorkload(child.name, child.uid, WorkloadReport((finished,)), seen.now)


def drain_reason(queueing: Queueing, pod: Pod) -> str | None:
    """Return why the pod of a worker has to go that is held now; None: it is not."""
    if pod.replica_type is None or pod.index is None:
        return None
    return "Kueue has taken back its quota" if Replica(pod.replica_type, pod.index) in queueing.held else None


def _found(seen: Observed) -> dict[str, Child]:
    return {child.name: child for child in seen.of(ChildKind.WORKLOAD) if child.spec_hash}


def _is_admitted(job: PyTorchJob, part: Part, child: Child | None) -> bool:
    if child is None or child.workload is None or child.deleting:
        return False
    return child.workload.standing is Standing.ADMITTED and _size(child.spec_hash) == _size(_hash(job, part))


def _pods(seen: Observed, part: Part) -> list[Pod]:
    """Return the pods of these replicas, also those that are being deleted."""
    named = {names.pod_name(seen.job.metadata.name, replica.type, replica.index) for replica in part.replicas}
    return [pod for pod in seen.pods if pod.name in named]


def _pods_of(seen: Observed, name: str) -> bool:
    """Return whether there are pods that run by the quota of this Workload, which the job needs no more."""
    if name == _name(seen.job):
        return bool(seen.pods)
    suffix = f"-{name.rpartition('.')[2]}"
    return any(pod.name == f"{seen.job.metadata.name}{suffix}" for pod in seen.pods)


def _problem(job: PyTorchJob, child: Child | None) -> PodProblem:
    where, state = f"queue {queue_of(job)}", (child and child.workload) or Workload()
    reason = state.waits_for
    if reason is Reason.QUEUE_HELD and child is not None:
        return PodProblem(reason, f"{where}: somebody has set spec.active of Workload {child.name} to false")
    return PodProblem(reason, f"{where}: {state.message or _UNSAID.get(reason, 'Kueue has not decided yet')}")


def _placements(
    seen: Observed, admitted: Iterable[Part], found: Mapping[str, Child]
) -> tuple[dict[Replica, Placement], frozenset[ClusterObject]]:
    """Return the placements of replicas without pods, and the flavors that have to be read for them."""
    placements: dict[Replica, Placement] = {}
    asks: set[ClusterObject] = set()
    for part in admitted:
        there, state = {pod.name for pod in _pods(seen, part)}, found[part.name].workload
        for replica in part.replicas:
            if state is None or names.pod_name(seen.job.metadata.name, replica.type, replica.index) in there:
                continue
            given = state.assignments.get(replica.type.label)
            if given is None:
                continue
            wanted = {name: ClusterObject(ClusterKind.RESOURCE_FLAVOR, name) for name in given.flavors}
            if unread := {each for each in wanted.values() if each not in seen.cluster}:
                asks |= unread
                continue
            flavors = {name: seen.cluster[each] or {} for name, each in wanted.items()}
            placements[replica] = placement(given, flavors, part.name, replica.type.label)
    return placements, frozenset(asks)


def _priority(seen: Observed, job: PyTorchJob) -> tuple[Priority | None, frozenset[ClusterObject], PodProblem | None]:
    """Return the priority; what has to be read to know it; why it is unknown. Kueue's order: its own class, the
    job's, those of the templates, the cluster's default.
    """
    policy = job.spec.run_policy.scheduling_policy
    templates = [spec.template.get("spec") or {} for _, spec in job.spec.pytorch_replica_specs.items()]
    by_pods = [policy and policy.priority_class, *(each.get("priorityClassName") for each in templates)]
    if own := job.metadata.labels.get(_LABEL_PRIORITY):
        group, asked = "kueue.x-k8s.io", ClusterObject(ClusterKind.WORKLOAD_PRIORITY_CLASS, own)
    else:
        name = next((str(each) for each in by_pods if each), "")
        group, asked = "scheduling.k8s.io", ClusterObject(ClusterKind.PRIORITY_CLASS, name)
    if asked not in seen.cluster:
        return None, frozenset({asked}), None
    obj = seen.cluster[asked]
    if obj is None and not asked.name:
        return Priority(), frozenset(), None
    if obj is None:
        words = f"no pod is created: the {asked.kind} {asked.name} does not exist, or cannot be read"
        return None, frozenset(), PodProblem(Reason.PRIORITY_CLASS_MISSING, words)
    return (
        Priority(
            int(obj.get("value") or 0),
            {"group": group, "kind": asked.kind.value, "name": asked.name or obj["metadata"]["name"]},
        ),
        frozenset(),
        None,
    )


def _body(job: PyTorchJob, part: Part, priority: Priority) -> dict[str, Any]:
    labels = job.metadata.labels
    spec: dict[str, Any] = {
        "podSets": _pod_sets(job, part),
        "queueName": queue_of(job),
        "priority": priority.value if part.needed else priority.value - 1,
    }
    if priority.reference and part.needed:
        spec["priorityClassRef"] = dict(priority.reference)
    if (most := labels.get(_LABEL_MOST_SECONDS, "")).isdigit():
        spec["maximumExecutionTimeSeconds"] = int(most)
    body = children.build_child(job, _API_VERSION, ChildKind.WORKLOAD.kind, spec)
    body["metadata"]["name"] = part.name
    body["metadata"]["labels"][_LABEL_JOB_UID] = job.metadata.uid
    notes = {key: text for key, text in job.metadata.annotations.items() if key.startswith(_PROVISIONING)}
    body["metadata"]["annotations"] = {**notes, names.ANNOTATION_SPEC_HASH: _hash(job, part)}
    return body


def _hash(job: PyTorchJob, part: Part) -> str:
    """Return the hash of what has quota, and that of all that Kueue reads.

    A Workload with quota is compared by the first alone: another version of the operator may write more into it.
    """
    sets = _pod_sets(job, part)
    containers = [
        [(each["template"]["spec"].get(key) or ()) for key in ("containers", "initContainers")] for each in sets
    ]
    requests = [[[one.get("resources") or {} for one in group] for group in groups] for groups in containers]
    return f"{children.spec_hash([[each['count'] for each in sets], requests])}-{children.spec_hash(sets)}"


def _size(found: str) -> str:
    return found.partition("-")[0]


def _pod_sets(job: PyTorchJob, part: Part) -> list[dict[str, Any]]:
    """Return the pod sets, named like those of Kueue's own integration."""
    found = []
    for role, spec in job.spec.pytorch_replica_specs.items():
        count = sum(replica.type is role for replica in part.replicas)
        if not count:
            continue
        template = _template(spec.template)
        asked = _topology((spec.template.get("metadata") or {}).get("annotations") or {})
        found.append({
            "name": role.label, "count": count, "template": template, **({"topologyRequest": asked} if asked else {})
        })  # fmt: skip
    return found


def _template(given: Mapping[str, Any]) -> dict[str, Any]:
    meta, spec = given.get("metadata") or {}, given.get("spec") or {}
    kept: dict[str, Any] = {key: spec[key] for key in _OF_POD if spec.get(key)}
    for key in ("containers", "initContainers"):
        if spec.get(key):
            kept[key] = [{name: each[name] for name in _OF_CONTAINER if each.get(name)} for each in spec[key]]
    texts = {key: meta[key] for key in ("labels", "annotations") if meta.get(key)}
    return {**({"metadata": texts} if texts else {}), "spec": {**kept, "restartPolicy": "Never"}}


def _topology(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Return the topology that the annotations of a template ask for, as Kueue reads them."""
    for key, name in _TOPOLOGY.items():
        if text := annotations.get(key):
            value = str(text).lower() == "true" if name == "unconstrained" else str(text)
            return {name: value, "podIndexLabel": names.LABEL_REPLICA_INDEX}
    return {}
