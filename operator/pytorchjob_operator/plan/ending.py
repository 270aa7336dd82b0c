"""What is left of a job that has ended: its pods by cleanPodPolicy, the job itself until its TTL (contract A.10, A.11).

`None` keeps every pod, and with it the logs; but a job that was stopped by its deadline stops its pods too.
"""

from collections.abc import Iterator
from datetime import datetime

from pytorchjob_operator.model import CleanPodPolicy, ConditionType, PyTorchJob
from pytorchjob_operator.names import ChildKind, Reason
from pytorchjob_operator.observed import Observed, Pod, PodPhase
from pytorchjob_operator.plan import children, limits
from pytorchjob_operator.plan.writes import DeleteChild, DeleteJob, DeletePod, Event, Plan, Write

_ENDS = (ConditionType.SUCCEEDED, ConditionType.FAILED)
_ALIVE = (PodPhase.PENDING, PodPhase.RUNNING, PodPhase.UNKNOWN)


def ended(job: PyTorchJob) -> ConditionType | None:
    """The end that the status records, if the job has come to one."""
    return next((kind for kind in _ENDS if job.status.holds(kind)), None)


def make_plan(seen: Observed, end: ConditionType) -> Plan:
    """Plan the clean-up of a job that has ended; its status is never touched again."""
    job = seen.job
    expires = expiry(job)
    if expires is not None and expires <= seen.now:
        meta = job.metadata
        told = Event(Reason.DELETED_POD, f"Deleted job: {meta.name}")  # v1's reason for it
        return Plan(f"the job has {end.lower()} and its TTL is over", (DeleteJob(meta.name, meta.uid),), events=(told,))
    writes = tuple(_clean_up(seen, job))
    what = f"{len(writes)} children to delete" if writes else "nothing to do"
    return Plan(f"the job has {end.lower()}: {what}", writes, wake_at=expires)


def expiry(job: PyTorchJob) -> datetime | None:
    """When ttlSecondsAfterFinished are over, whatever the end was."""
    seconds = job.spec.run_policy.ttl_seconds_after_finished
    if seconds is None:
        return None
    completed = job.status.completion_time or max(
        (one.last_transition_time for one in job.status.conditions if one.type in _ENDS and one.last_transition_time),
        default=None,
    )
    return limits.after(completed, seconds)


def _clean_up(seen: Observed, job: PyTorchJob) -> Iterator[Write]:
    policy = job.spec.run_policy.clean_pod_policy or CleanPodPolicy.NONE
    for pod in seen.pods:
        if not pod.deleting and _goes(policy, pod, job):
            yield DeletePod(pod.name, pod.uid, _why(policy))
    if policy is CleanPodPolicy.ALL:
        services = seen.of(ChildKind.SERVICE)
        yield from (DeleteChild(one.kind, one.name, one.uid) for one in services if not one.deleting)
    yield from children.release(seen)


def _goes(policy: CleanPodPolicy, pod: Pod, job: PyTorchJob) -> bool:
    if policy is CleanPodPolicy.ALL:
        return True
    return pod.phase in _ALIVE and (policy is CleanPodPolicy.RUNNING or _overran(job))


def _overran(job: PyTorchJob) -> bool:
    """Whether the job was stopped by its deadline: its pods would run on for ever."""
    end, completed = limits.deadline(job), job.status.completion_time
    return job.status.holds(ConditionType.FAILED) and end is not None and completed is not None and completed >= end


def _why(policy: CleanPodPolicy) -> str:
    return "the job ran into its deadline" if policy is CleanPodPolicy.NONE else f"cleanPodPolicy is {policy.value}"
