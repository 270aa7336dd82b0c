"""What remains of a job that has ended: its pods by cleanPodPolicy, the job itself until its TTL.

`None` keeps every pod and its logs. A job that exceeded its deadline stops its running pods under every policy.
"""

from collections.abc import Iterator
from datetime import datetime

from pytorchjob_operator import names
from pytorchjob_operator.model import CleanPodPolicy, ConditionType, PyTorchJob
from pytorchjob_operator.names import ChildKind, Reason
from pytorchjob_operator.observed import Observed, Pod, PodPhase
from pytorchjob_operator.plan import children, job_limits, queue
from pytorchjob_operator.plan.writes import DeleteChild, DeleteJob, DeletePod, Event, Plan, Write

_ENDS = (ConditionType.SUCCEEDED, ConditionType.FAILED)
_ALIVE = (PodPhase.PENDING, PodPhase.RUNNING, PodPhase.UNKNOWN)


def ended(job: PyTorchJob) -> ConditionType | None:
    """Return the end that the status records, or None."""
    return next((kind for kind in _ENDS if job.status.holds(kind)), None)


def make_plan(seen: Observed, end: ConditionType) -> Plan:
    """Plan the clean-up of a job that has ended; its status never changes again."""
    job = seen.job
    expires = expiry(job)
    if expires is not None and expires <= seen.now:
        meta = job.metadata
        event = Event(Reason.DELETED_POD, f"Deleted job: {meta.name}")  # v1's reason for it
        return Plan(
            f"the job has {end.lower()} and its TTL has passed", (DeleteJob(meta.name, meta.uid),), events=(event,)
        )
    deletions, reports = tuple(_clean_up(seen, job)), tuple(queue.end(seen))
    what = [f"{len(deletions)} children to delete"] if deletions else []
    what += [f"{len(reports)} Workloads are finished"] if reports else []
    words = ", ".join(what) or "nothing to do"
    return Plan(f"the job has {end.lower()}: {words}", (*deletions, *reports), wake_at=expires)


def expiry(job: PyTorchJob) -> datetime | None:
    """Return when ttlSecondsAfterFinished have passed since the job's end; None without a TTL.

    What MultiKueue has made here, it deletes: it would take a job that is gone for one that has to run again.
    """
    seconds = job.spec.run_policy.ttl_seconds_after_finished
    if seconds is None or names.LABEL_KUEUE_ORIGIN in job.metadata.labels:
        return None
    completed = job.status.completion_time or max(
        (
            condition.last_transition_time
            for condition in job.status.conditions
            if condition.type in _ENDS and condition.last_transition_time
        ),
        default=None,
    )
    return job_limits.after(completed, seconds)


def _clean_up(seen: Observed, job: PyTorchJob) -> Iterator[Write]:
    policy = job.spec.run_policy.clean_pod_policy or CleanPodPolicy.NONE
    for pod in seen.pods:
        if not pod.deleting and _goes(policy, pod, job):
            yield DeletePod(pod.name, pod.uid, _why(policy, pod))
    if policy is CleanPodPolicy.ALL:
        services = seen.of(ChildKind.SERVICE)
        yield from (
            DeleteChild(service.kind, service.name, service.uid) for service in services if not service.deleting
        )
    yield from children.release(seen)


def _goes(policy: CleanPodPolicy, pod: Pod, job: PyTorchJob) -> bool:
    if policy is CleanPodPolicy.ALL or pod.reserve_for:
        return True
    return pod.phase in _ALIVE and (policy is CleanPodPolicy.RUNNING or _overran(job))


def _overran(job: PyTorchJob) -> bool:
    """Whether the job exceeded its deadline: otherwise its pods would run for ever."""
    end, completed = job_limits.deadline(job), job.status.completion_time
    return job.status.holds(ConditionType.FAILED) and end is not None and completed is not None and completed >= end


def _why(policy: CleanPodPolicy, pod: Pod) -> str:
    if pod.reserve_for:
        return "the job has ended"
    return "the job exceeded its deadline" if policy is CleanPodPolicy.NONE else f"cleanPodPolicy is {policy.value}"
