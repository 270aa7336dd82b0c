"""Gang scheduling: who places a job's pods together, and whether they may be made yet (contract A.13).

No pod is made before its PodGroup is there, because a pod without one would be placed alone. Volcano lets pods be made
once it has put the PodGroup into its queue; the scheduler-plugins take them as they come.
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

NOBODY = "none"
DEFAULT_QUEUE = "default"
WAITS = frozenset([Reason.POD_GROUP_PENDING, Reason.POD_GROUP_UNSCHEDULABLE, Reason.GANG_SCHEDULER_UNAVAILABLE])
"""The reasons for which pods are held back."""
_KINDS = tuple(podgroup.API_VERSIONS)
_NOT_LET_IN = ("", "Pending")
_FIELD = "spec.runPolicy.schedulingPolicy.gangScheduler"


@dataclass(frozen=True, slots=True)
class Marks:
    """What a pod carries for its scheduler to know its gang by, and the scheduler unless the template names one."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    scheduler_name: str = ""


def scheduler(job: PyTorchJob, options: Options) -> str:
    """Who places the job's pods as a gang, by the job's own word or by the operator's settings; empty: nobody."""
    policy = job.spec.run_policy.scheduling_policy
    name = (policy and policy.gang_scheduler) or options.gang_scheduler
    return "" if name == NOBODY else name


def kind(job: PyTorchJob, options: Options) -> ChildKind | None:
    """Which kind of PodGroup the job needs."""
    name = scheduler(job, options)
    if not name:
        return None
    return ChildKind.VOLCANO_POD_GROUP if name == names.VOLCANO else ChildKind.POD_GROUP


def marks(job: PyTorchJob, replica_type: ReplicaType, options: Options) -> Marks:
    """What the pods of one role carry, as under v1."""
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
    """Make the PodGroup, bring it up to date, and take away one of a scheduler that the job no longer has."""
    mine = kind(context.job, context.seen.options)
    for one in _KINDS:
        wanted = podgroup.build_pod_group(context.job, one) if one is mine else None
        yield from map(_with_queue, children.converge(context.seen, one, wanted))


def _with_queue(write: Write) -> Write:
    """A new PodGroup of Volcano has a queue; one that is there keeps its own, whoever gave it that."""
    if not isinstance(write, CreateChild) or write.kind is not ChildKind.VOLCANO_POD_GROUP:
        return write
    spec = {"queue": DEFAULT_QUEUE, **write.body["spec"]}
    return replace(write, body={**write.body, "spec": spec})


def held(context: Context) -> bool:
    """Whether pods are missing and must not be made yet."""
    mine = kind(context.job, context.seen.options)
    if mine is None or not context.compared.missing:
        return False
    group = _found(context.seen, mine)
    return group is None or (mine is ChildKind.VOLCANO_POD_GROUP and group.phase in _NOT_LET_IN)


def problem(context: Context) -> PodProblem | None:
    """Why pods are held back, where it is not merely because the PodGroup is about to be made."""
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
        return PodProblem(Reason.POD_GROUP_PENDING, f"{state}: no pod is made until it is")
    return PodProblem(Reason.POD_GROUP_UNSCHEDULABLE, f"{state}: {group.problem.reason}: {group.problem.message}")


def events(seen: Observed, writes: Iterable[Write]) -> Iterator[Event]:
    """Tell once of templates that name another scheduler, and of PodGroups that are given back (v1's events)."""
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
            what = f"is not the gang scheduler {name} and is left as it is: remove it, or set {_FIELD}"
            yield Event(Reason.TEMPLATE_SCHEDULER_NAME, f"{where} {what}", EventType.WARNING)


def _found(seen: Observed, mine: ChildKind) -> Child | None:
    return next((one for one in seen.of(mine) if not one.deleting), None)


def _unavailable(context: Context, mine: ChildKind, why: str) -> str:
    what = f"no pod is made: the resource {podgroup.API_VERSIONS[mine]} PodGroup cannot be used: {why}"
    name = scheduler(context.job, context.seen.options)
    grant = "let the operator use it (chart: gangScheduling.enabled)"
    return f"{what}; install {name} with its resources, {grant}, or set {_FIELD} to {NOBODY}"
