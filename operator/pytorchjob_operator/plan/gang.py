"""Gang scheduling: which scheduler places a job's pods together, and whether they may be created yet.

Pods are created after their PodGroup, because a pod without a PodGroup would be scheduled alone. Volcano allows pods
once the PodGroup is in its queue; the scheduler-plugins allow them at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ChildKind, EventType, Reason, ReplicaType
from pytorchjob_operator.observed import Child, Observed, Options, PodProblem
from pytorchjob_operator.plan import children, podgroup
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.writes import CreateChild, DeleteChild, Event, Write

NO_SCHEDULER = "none"
DEFAULT_QUEUE = "default"
WAITS = frozenset([Reason.POD_GROUP_PENDING, Reason.POD_GROUP_UNSCHEDULABLE, Reason.GANG_SCHEDULER_UNAVAILABLE])
"""Reasons for which pods are held back."""
_KINDS = tuple(podgroup.API_VERSIONS)
_NOT_QUEUED = ("", "Pending")
_FIELD = "spec.runPolicy.schedulingPolicy.gangScheduler"


@dataclass(frozen=True, slots=True)
class Marks:
    """What marks a pod as a member of its gang, and the scheduler unless the template names another."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    scheduler_name: str = ""


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
    return ChildKind.VOLCANO_POD_GROUP if name == names.VOLCANO else ChildKind.POD_GROUP


def marks(job: PyTorchJob, replica_type: ReplicaType, options: Options) -> Marks:
    """Return the marks of the pods of one role, as under v1."""
    name, group = scheduler(job, options), names.pod_group_name(job.metadata.name)
    match kind(job, options):
        case None:
            return Marks()
        case ChildKind.VOLCANO_POD_GROUP:
            task = {names.ANNOTATION_VOLCANO_GROUP: group, names.ANNOTATION_VOLCANO_TASK: replica_type.label}
            return Marks(annotations=task, scheduler_name=name)
        case _:
            return Marks(labels={names.LABEL_POD_GROUP: group}, scheduler_name=name)


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
    return group is None or (mine is ChildKind.VOLCANO_POD_GROUP and group.phase in _NOT_QUEUED)


def problem(context: Context) -> PodProblem | None:
    """Return why pods are held back; None if they are not, or only until this pass has created the PodGroup."""
    mine = kind(context.job, context.seen.options)
    if mine is None or not held(context):
        return None
    why, group = context.seen.unserved.get(mine), _found(context.seen, mine)
    if why:
        return PodProblem(Reason.GANG_SCHEDULER_UNAVAILABLE, _unavailable(context, mine, why))
    if group is None:
        return None
    state = f"PodGroup {group.name} is not in {names.VOLCANO}'s queue yet (phase: {group.phase or 'none'})"
    if group.problem is None:
        return PodProblem(Reason.POD_GROUP_PENDING, f"{state}: no pod is created until it is")
    return PodProblem(Reason.POD_GROUP_UNSCHEDULABLE, f"{state}: {group.problem.reason}: {group.problem.message}")


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
        if name and given and given != name:
            where = f"spec.pytorchReplicaSpecs.{replica_type}.template.spec.schedulerName ({given})"
            what = f"is not the gang scheduler {name} and stays unchanged: remove it, or set {_FIELD}"
            yield Event(Reason.TEMPLATE_SCHEDULER_NAME, f"{where} {what}", EventType.WARNING)


def _found(seen: Observed, mine: ChildKind) -> Child | None:
    return next((group for group in seen.of(mine) if not group.deleting), None)


def _unavailable(context: Context, mine: ChildKind, why: str) -> str:
    what = f"no pod is created: the resource {podgroup.API_VERSIONS[mine]} PodGroup cannot be used: {why}"
    name = scheduler(context.job, context.seen.options)
    grant = "grant the operator access (chart: gangScheduling.enabled)"
    return f"{what}; install {name} with its resources, {grant}, or set {_FIELD} to {NO_SCHEDULER}"
