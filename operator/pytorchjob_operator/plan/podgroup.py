"""The content of a PodGroup: how many of the job's pods must start together, and their resources.

Source of Kubernetes' own: `pkg/apis/scheduling/types.go` of Kubernetes 1.37.

An elastic job needs its minimum of workers and its Master; v1 required all workers and ignored `minReplicas` here.
`gang` decides which job has a PodGroup.
"""

from collections.abc import Iterator
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.model.spec import SchedulingPolicy
from pytorchjob_operator.names import ChildKind, ReplicaType
from pytorchjob_operator.plan import children, quantity, replicas

API_VERSIONS = {
    ChildKind.VOLCANO_POD_GROUP: "scheduling.volcano.sh/v1beta1",
    ChildKind.POD_GROUP: "scheduling.x-k8s.io/v1alpha1",
    ChildKind.NATIVE_POD_GROUP: "scheduling.k8s.io/v1beta1",
}


def build_pod_group(job: PyTorchJob, kind: ChildKind) -> dict[str, Any]:
    """Build the PodGroup of a job that has its defaults, with the job's annotations as under v1.

    Without a queue in the job it has no queue: `gang` gives a new PodGroup the default.
    """
    spec = _native(job) if kind is ChildKind.NATIVE_POD_GROUP else _of_scheduler(job, kind)
    body = children.build_child(job, API_VERSIONS[kind], kind.kind, spec)
    given = {key: text for key, text in job.metadata.annotations.items() if key != names.ANNOTATION_LAST_APPLIED}
    body["metadata"]["annotations"] = {**given, **body["metadata"]["annotations"]}
    return body


def _of_scheduler(job: PyTorchJob, kind: ChildKind) -> dict[str, Any]:
    policy = job.spec.run_policy.scheduling_policy or SchedulingPolicy()
    spec: dict[str, Any] = {"minMember": min_member(job), "minResources": min_resources(job)}
    if kind is ChildKind.VOLCANO_POD_GROUP:
        spec |= {"priorityClassName": policy.priority_class or ""}
        spec |= {"queue": policy.queue} if policy.queue else {}
    elif policy.schedule_timeout_seconds is not None:
        spec |= {"scheduleTimeoutSeconds": policy.schedule_timeout_seconds}
    return spec


def _native(job: PyTorchJob) -> dict[str, Any]:
    """Kubernetes may preempt single pods of an elastic job; the others of a job of fixed size could not go on."""
    priority = priority_class(job)
    return {
        "schedulingPolicy": {"gang": {"minCount": min_member(job)}},
        "disruptionMode": {"all" if job.spec.elastic_policy is None else "single": {}},
        **({"priorityClassName": priority} if priority else {}),
    }


def priority_class(job: PyTorchJob) -> str:
    """Return the class of priority of the whole group: the policy's, or the one of all templates; empty: none."""
    policy = job.spec.run_policy.scheduling_policy
    if policy is not None and policy.priority_class:
        return policy.priority_class
    templates = [spec.template.get("spec") or {} for _, spec in job.spec.pytorch_replica_specs.items()]
    found = {str(each.get("priorityClassName") or "") for each in templates}
    return next(iter(found)) if len(found) == 1 else ""


def min_member(job: PyTorchJob) -> int:
    """Return how many pods must start together; at most the job's replicas, or no pod would ever start."""
    policy, elastic, most = job.spec.run_policy.scheduling_policy, job.spec.elastic_policy, replicas.total(job)
    if policy is not None and policy.min_available is not None:
        return min(policy.min_available, most)
    if elastic is not None and elastic.min_replicas is not None:
        return min(elastic.min_replicas + replicas.count(job, ReplicaType.MASTER), most)
    return most


def min_resources(job: PyTorchJob) -> dict[str, Any]:
    """Return what must be free before any pod starts: as given, or the requests of the first `min_member` pods."""
    policy = job.spec.run_policy.scheduling_policy
    if policy is not None and policy.min_resources is not None:
        return dict(policy.min_resources)
    found = quantity.total(_requests(job))
    return {name: quantity.render(found[name]) for name in sorted(found)}


def _requests(job: PyTorchJob) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield for each container of these pods, Master first: its number, and its requests (else its limits).

    Init containers do not count, as under v1.
    """
    left = min_member(job)
    for replica_type, spec in job.spec.pytorch_replica_specs.items():
        times = min(left, replicas.count(job, replica_type))
        left -= times
        for container in (spec.template.get("spec") or {}).get("containers") or ():
            resources = container.get("resources") or {}
            yield times, {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
