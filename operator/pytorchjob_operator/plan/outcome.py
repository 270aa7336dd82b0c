"""The phase of the job as a whole: success and failure rules with and without a Master (docs/compatibility.md).

Success is checked before failure, Master before Worker. v1 depended on the order of a Go map; here a job that has
succeeded stays succeeded.
"""

from dataclasses import dataclass
from enum import StrEnum

from pytorchjob_agent.contract.reasons import EndReason
from pytorchjob_operator.model import FailureStatus, FirstFailureStatus, PyTorchJob, ReplicaSpec, RestartPolicy
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.plan import replicas, restart
from pytorchjob_operator.plan.replicas import ReplicaComparison
from pytorchjob_operator.plan.restart import PodAction


class JobPhase(StrEnum):
    """The phase of a job, by one observation of its pods."""

    PENDING = "Pending"
    SUSPENDED = "Suspended"
    QUEUED = "Queued"
    """Suspended by its queue."""
    RESUMED = "Resumed"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


ENDS = (JobPhase.SUCCEEDED, JobPhase.FAILED)
"""The phases of a job that is over."""
SUSPENDED = (JobPhase.SUSPENDED, JobPhase.QUEUED)
"""The phases of a job that may not have pods, by its author or by its queue."""
STOPPED = (*SUSPENDED, JobPhase.RESUMED)
"""The phases of a job that is suspended, and of one whose suspension ends with this pass."""
WITHOUT_PODS = (*STOPPED, *ENDS)
"""The phases in which a job gets no pods, and shows no problem of pods or training."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Pods of one role by state; a pending pod counts nowhere (docs/compatibility.md)."""

    wanted: int = 0
    active: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def settled(self) -> bool:
        """Whether every replica runs or has succeeded: then the counters do not change by themselves."""
        return self.active + self.succeeded == self.wanted


@dataclass(frozen=True, slots=True)
class Outcome:
    """The phase, and the message for its condition."""

    phase: JobPhase
    message: str
    failure: FailureStatus | None = None
    """Of a job that has failed: why, for programs."""


def failed(reason: EndReason, message: str, first: FirstFailureStatus | None = None) -> Outcome:
    """Return the outcome of a job that fails now."""
    return Outcome(JobPhase.FAILED, message, FailureStatus(reason=reason, first=first))


def count(job: PyTorchJob, seen: ReplicaComparison) -> dict[ReplicaType, Counts]:
    """Count the pods of each role that the job has; surplus pods do not count."""
    result = {}
    for replica_type, _ in job.spec.pytorch_replica_specs.items():
        pods = [pod for replica, pod in seen.present.items() if replica.type is replica_type]
        result[replica_type] = Counts(
            wanted=replicas.count(job, replica_type) - sum(each.type is replica_type for each in seen.held),
            active=sum(pod.active for pod in pods),
            succeeded=sum(pod.succeeded for pod in pods),
            failed=sum(pod.failed for pod in pods),
        )
    return result


def decide(job: PyTorchJob, seen: ReplicaComparison, counts: dict[ReplicaType, Counts]) -> Outcome:
    """Decide the phase of the job; messages are v1's to the letter (docs/compatibility.md)."""
    name = job.metadata.name
    with_master = ReplicaType.MASTER in counts
    where = name if with_master else f"{job.metadata.namespace}/{name}"
    if _succeeded(job, counts):
        verb = "is successfully completed" if with_master else "successfully completed"
        return Outcome(JobPhase.SUCCEEDED, f"PyTorchJob {where} {verb}.")
    for replica_type, spec in job.spec.pytorch_replica_specs.items():
        lost = counts[replica_type]
        if lost.failed == 0 or lost.settled:
            continue
        pods = [pod for replica, pod in seen.present.items() if replica.type is replica_type]
        decisions = {restart.decide(replicas.restart_policy(spec), pod)[0] for pod in pods}
        if PodAction.END in decisions:
            return failed(EndReason.REPLICA_FAILED, _failed(name, replica_type, spec, lost))
        return Outcome(JobPhase.RESTARTING, _restarting(name, replica_type, lost, PodAction.REPLACE in decisions))
    leader = counts[ReplicaType.MASTER if with_master else ReplicaType.WORKER]
    if leader.active > 0:
        return Outcome(JobPhase.RUNNING, f"PyTorchJob {where} is running.")
    return Outcome(JobPhase.PENDING, f"PyTorchJob {name} waits for its pods to run.")


def _succeeded(job: PyTorchJob, counts: dict[ReplicaType, Counts]) -> bool:
    master = counts.get(ReplicaType.MASTER)
    if master is not None:
        return master.succeeded == master.wanted
    workers = counts[ReplicaType.WORKER]
    if job.spec.elastic_policy is not None:
        return workers.succeeded > 0
    return workers.succeeded == workers.wanted


def _failed(name: str, replica_type: ReplicaType, spec: ReplicaSpec, lost: Counts) -> str:
    if replicas.restart_policy(spec) is RestartPolicy.EXIT_CODE:
        return f'job "{name}" is failing because "{replica_type}" replica(s) failed.'
    return f"PyTorchJob {name} is failed because {lost.failed} {replica_type} replica(s) failed."


def _restarting(name: str, replica_type: ReplicaType, lost: Counts, replaced: bool) -> str:
    if replaced:
        return f"job {name} is restarting because {replica_type} replica(s) failed."
    return f"PyTorchJob {name} is restarting because {lost.failed} {replica_type} replica(s) failed."
