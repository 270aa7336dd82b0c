"""The events of a plan for `kubectl describe`: one per change, not one per pod."""

from collections.abc import Iterator

from pytorchjob_operator.model import ConditionType, JobStatus, PyTorchJob
from pytorchjob_operator.names import EventType, Reason
from pytorchjob_operator.plan import failing_nodes, gang, stragglers
from pytorchjob_operator.plan.outcome import JobPhase, Outcome
from pytorchjob_operator.plan.writes import CreatePod, DeletePod, Event, Write

_NAMED = 8
"""Number of pods that a message names; it only counts the others."""

_ENDS = {
    JobPhase.RESTARTING: (ConditionType.RESTARTING, Reason.RESTARTING, EventType.WARNING),
    JobPhase.SUSPENDED: (ConditionType.SUSPENDED, Reason.SUSPENDED, EventType.NORMAL),
    JobPhase.SUCCEEDED: (ConditionType.SUCCEEDED, Reason.SUCCEEDED, EventType.NORMAL),
    JobPhase.FAILED: (ConditionType.FAILED, Reason.FAILED, EventType.WARNING),
}


def build_events(
    job: PyTorchJob, result: Outcome, writes: tuple[Write, ...], status: JobStatus | None
) -> Iterator[Event]:
    """Yield the events of these writes and of this new status, in the order in which they become true."""
    created = [write.body["metadata"]["name"] for write in writes if isinstance(write, CreatePod)]
    deleted = [write for write in writes if isinstance(write, DeletePod)]
    if created:
        yield Event(Reason.CREATED_POD, f"Created {_pods(created)}")
    yield from _template_warning(job, first=not job.status.conditions)
    for reason in dict.fromkeys(write.reason for write in deleted):
        yield Event(
            Reason.DELETED_POD, f"Deleted {_pods([pod.name for pod in deleted if pod.reason == reason])}: {reason}"
        )
    if status is not None and job.status.holds(ConditionType.SUSPENDED) and not status.holds(ConditionType.SUSPENDED):
        yield Event(Reason.RESUMED, f"PyTorchJob {job.metadata.name} is resumed.")
    yield from _held_back(job, status)
    yield from failing_nodes.events(job, status)
    yield from stragglers.events(job, status)
    if status is not None and result.phase in _ENDS:
        kind, reason_code, event_type = _ENDS[result.phase]
        if status.holds(kind) and not job.status.holds(kind):
            yield Event(reason_code, result.message, event_type)


def _held_back(job: PyTorchJob, status: JobStatus | None) -> Iterator[Event]:
    """Yield the reason why a gang's pods are held back; `pod_events` reports what existing pods wait for."""
    new = status.condition(ConditionType.WAITING) if status is not None else None
    old = job.status.condition(ConditionType.WAITING)
    if new is None or new.reason not in gang.WAITS or (old is not None and old.reason == new.reason):
        return
    pending = new.reason == Reason.POD_GROUP_PENDING
    yield Event(Reason(new.reason), new.message, EventType.NORMAL if pending else EventType.WARNING)


def force_deleted(writes: tuple[DeletePod, ...]) -> Iterator[Event]:
    """Yield one event for the pods of each node that are deleted by force."""
    for reason in dict.fromkeys(write.reason for write in writes):
        pods = _pods([write.name for write in writes if write.reason == reason])
        yield Event(Reason.FORCE_DELETED_POD, f"Force-deleted {pods}: {reason}", EventType.WARNING)


def _pods(names: list[str]) -> str:
    if len(names) == 1:
        return f"pod: {names[0]}"
    named = ", ".join(names[:_NAMED])
    return f"{len(names)} pods: {named}{', ...' if len(names) > _NAMED else ''}"


def _template_warning(job: PyTorchJob, *, first: bool) -> Iterator[Event]:
    """Yield once that a restartPolicy inside a pod template has no effect (v1's warning)."""
    if not first:
        return
    for replica_type, spec in job.spec.pytorch_replica_specs.items():
        given = (spec.template.get("spec") or {}).get("restartPolicy")
        if given:
            yield Event(
                Reason.TEMPLATE_RESTART_POLICY,
                f"spec.pytorchReplicaSpecs.{replica_type}.template.spec.restartPolicy ({given}) is overwritten by"
                f" spec.pytorchReplicaSpecs.{replica_type}.restartPolicy",
                EventType.WARNING,
            )
