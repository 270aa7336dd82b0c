"""Gang scheduling: which scheduler places a job's pods together, and whether they may be created yet.

Pods are created after their PodGroup, because a pod without a PodGroup would be scheduled alone. Volcano allows pods
once the PodGroup is in its queue; the scheduler-plugins and Kubernetes itself allow them at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ChildKind, EventType, Reason, ReplicaType
from pytorchjob_operator.observed import Child, Observed, Options, Pod, PodProblem
from pytorchjob_operator.plan import children, podgroup
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.writes import CreateChild, DeleteChild, Event, Write

NO_SCHEDULER = "none"
DEFAULT_QUEUE = "default"
WAITS = frozenset([Reason.POD_GROUP_PENDING, Reason.POD_GROUP_UNSCHEDULABLE, Reason.GANG_SCHEDULER_UNAVAILABLE])
"""Reasons for which pods are held back."""
_KINDS = tuple(podgroup.API_VERSIONS)
_NOT_QUEUED = ("", "Pending")
_NATIVE_NEEDS = (
    "use Kubernetes 1.37 or newer with its feature gate GenericWorkload in the API server, the scheduler and the"
    " controller manager, and the API server's --runtime-config=scheduling.k8s.io/v1beta1=true"
)
_FIELD = "spec.runPolicy.schedulingPolicy.gangScheduler"


@dataclass(frozen=True, slots=True)
class Marks:
    """What marks a pod as a member of its gang."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Of the pod's spec, such as the scheduler; what the template says wins."""


def scheduler(job: PyTorchJob, options: Options) -> str:
    """Return the gang scheduler that the job names, otherwise the operator's; empty without gang scheduling."""
    policy = job.spec.run_policy.scheduling_policy
    name = (policy and policy.gang_scheduler) or options.gang_scheduler
    return "" if name == NO_SCHEDULER else name


def kind(job: PyTorchJob, options: Options) -> ChildKind | None:
    """Return the kind of PodGroup that the job needs, or None."""
    name = scheduler(job, options)
    if not name:
        return None
    own = {names.VOLCANO: ChildKind.VOLCANO_POD_GROUP, names.NATIVE: ChildKind.NATIVE_POD_GROUP}
    return own.get(name, ChildKind.POD_GROUP)


def marks(job: PyTorchJob, replica_type: ReplicaType, options: Options) -> Marks:
    """Return the marks of the pods of one role, as under v1."""
    name, group = scheduler(job, options), names.pod_group_name(job.metadata.name)
    match kind(job, options):
        case None:
            return Marks()
        case ChildKind.VOLCANO_POD_GROUP:
            task = {names.ANNOTATION_VOLCANO_GROUP: group, names.ANNOTATION_VOLCANO_TASK: replica_type.label}
            return Marks(annotations=task, fields={"schedulerName": name})
        case ChildKind.NATIVE_POD_GROUP:
            priority = podgroup.priority_class(job)  # Kubernetes wants it to be that of the group
            return Marks(
                fields={
                    "schedulingGroup": {"podGroupName": group},
                    **({"priorityClassName": priority} if priority else {}),
                }
            )
        case _:
            return Marks(labels={names.LABEL_POD_GROUP: group}, fields={"schedulerName": name})


def writes(context: Context) -> Iterator[Write]:
    """Create or update the PodGroup, and delete the PodGroup of a scheduler that the job no longer uses."""
    mine = kind(context.job, context.seen.options)
    for known in _KINDS:
        wanted = podgroup.build_pod_group(context.job, known) if known is mine else None
        yield from map(_with_queue, children.converge(context.seen, known, wanted))


def _with_queue(write: Write) -> Write:
    """Give a new PodGroup of Volcano the default queue; an existing PodGroup keeps its queue."""
    if not isinstance(write, CreateChild) or write.kind is not ChildKind.VOLCANO_POD_GROUP:
        return write
    spec = {"queue": DEFAULT_QUEUE, **write.body["spec"]}
    return replace(write, body={**write.body, "spec": spec})


def held(context: Context) -> bool:
    """Whether pods are missing and must not be created yet."""
    mine = kind(context.job, context.seen.options)
    if mine is None or not context.compared.missing:
        return False
    group = _found(context.seen, mine)
    if group is None:
        return True
    match mine:
        case ChildKind.VOLCANO_POD_GROUP:
            return group.phase in _NOT_QUEUED
        case ChildKind.NATIVE_POD_GROUP:
            return _alone(context.seen) is not None
        case _:
            return False


def problem(context: Context) -> PodProblem | None:
    """Return why pods are held back; None if they are not, or only until this pass has created the PodGroup."""
    mine = kind(context.job, context.seen.options)
    if mine is None:
        return None
    group, is_held = _found(context.seen, mine), held(context)
    if group is not None and mine is ChildKind.NATIVE_POD_GROUP:
        return _of_native(context.seen, group, is_held=is_held)
    if not is_held:
        return None
    if why := context.seen.unserved.get(mine):
        return PodProblem(Reason.GANG_SCHEDULER_UNAVAILABLE, _unavailable(context, mine, why))
    if group is None:
        return None
    state = f"PodGroup {group.name} is not in {names.VOLCANO}'s queue yet (phase: {group.phase or 'none'})"
    if group.problem is None:
        return PodProblem(Reason.POD_GROUP_PENDING, f"{state}: no pod is created until it is")
    return PodProblem(Reason.POD_GROUP_UNSCHEDULABLE, f"{state}: {group.problem.reason}: {group.problem.message}")


def _of_native(seen: Observed, group: Child, *, is_held: bool) -> PodProblem | None:
    """Return why the pods of Kubernetes' own gang wait: none has a node before enough of them fit."""
    if is_held and (alone := _alone(seen)) is not None:
        words = f"no further pod is created: the API server has dropped spec.schedulingGroup of pod {alone.name}"
        return PodProblem(Reason.GANG_SCHEDULER_UNAVAILABLE, f"{words}; {_NATIVE_NEEDS}")
    if group.problem is None or any(pod.node for pod in seen.pods):
        return None
    reported = f"PodGroup {group.name}: {group.problem.reason}: {group.problem.message}"
    return PodProblem(Reason.POD_GROUP_UNSCHEDULABLE, reported)


def _alone(seen: Observed) -> Pod | None:
    """Return a pod without a node that is in no group: an API server without the feature gate drops the field."""
    return next((pod for pod in seen.pods if not (pod.grouped or pod.node or pod.deleting or pod.failed)), None)


def events(seen: Observed, writes: Iterable[Write]) -> Iterator[Event]:
    """Yield one warning per template that names another scheduler, and the deletions of PodGroups (v1's events)."""
    if not seen.job.status.conditions:
        yield from _warnings(seen.job, scheduler(seen.job, seen.options))
    for write in writes:
        if isinstance(write, DeleteChild) and write.kind in _KINDS:
            yield Event(Reason.DELETED_POD_GROUP, f"Deleted PodGroup: {write.name}")


def _warnings(job: PyTorchJob, name: str) -> Iterator[Event]:
    for replica_type, spec in job.spec.pytorch_replica_specs.items():
        given = (spec.template.get("spec") or {}).get("schedulerName")
        if name and name != names.NATIVE and given and given != name:
            where = f"spec.pytorchReplicaSpecs.{replica_type}.template.spec.schedulerName ({given})"
            what = f"is not the gang scheduler {name} and stays unchanged: remove it, or set {_FIELD}"
            yield Event(Reason.TEMPLATE_SCHEDULER_NAME, f"{where} {what}", EventType.WARNING)


def _found(seen: Observed, mine: ChildKind) -> Child | None:
    return next((group for group in seen.of(mine) if not group.deleting), None)


def _unavailable(context: Context, mine: ChildKind, why: str) -> str:
    what = f"no pod is created: the resource {podgroup.API_VERSIONS[mine]} PodGroup cannot be used: {why}"
    name = scheduler(context.job, context.seen.options)
    grant = "grant the operator access (chart: gangScheduling.enabled)"
    needs = _NATIVE_NEEDS if mine is ChildKind.NATIVE_POD_GROUP else f"install {name} with its resources"
    return f"{what}; {needs}, {grant}, or set {_FIELD} to {NO_SCHEDULER}"
