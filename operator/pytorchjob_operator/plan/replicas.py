"""Which replicas should exist, and how the existing pods compare with them."""

from collections.abc import Iterator
from dataclasses import dataclass

from pytorchjob_operator import names
from pytorchjob_operator.model import ConditionType, PyTorchJob, ReplicaSpec, RestartPolicy
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.observed import Pod


@dataclass(frozen=True, slots=True)
class Replica:
    """One place in the job; a replaced pod stands for the same replica."""

    type: ReplicaType
    index: int


@dataclass(frozen=True, slots=True)
class ReplicaComparison:
    """The wanted replicas and the existing pods; `surplus` has the highest index first."""

    present: dict[Replica, Pod]
    missing: tuple[Replica, ...]
    surplus: tuple[Pod, ...]
    held: frozenset[Replica] = frozenset()
    """Replicas that are not wanted now, because the job's queue has no quota for them."""
    leaving: tuple[Pod, ...] = ()
    """Pods from before the last resume that still occupy their names: they count neither as lost nor as present."""


def count(job: PyTorchJob, replica_type: ReplicaType) -> int:
    """Return how many replicas of a role the job wants."""
    spec = job.spec.pytorch_replica_specs.get(replica_type)
    if spec is None:
        return 0
    return 1 if spec.replicas is None else spec.replicas


def restart_policy(spec: ReplicaSpec) -> RestartPolicy:
    """Return the policy of a role; unset means OnFailure."""
    return spec.restart_policy or RestartPolicy.ON_FAILURE


def total(job: PyTorchJob) -> int:
    """Return the number of all replicas of the job."""
    return sum(count(job, replica_type) for replica_type in ReplicaType)


def position(job: PyTorchJob, replica: Replica) -> int:
    """Return the replica's position in the job, from 0: the Master first, then the workers by index."""
    return replica.index + (count(job, ReplicaType.MASTER) if replica.type is ReplicaType.WORKER else 0)


def wanted(job: PyTorchJob) -> Iterator[Replica]:
    """Yield every replica that should exist, Master first, then by index."""
    for replica_type in ReplicaType:
        for index in range(count(job, replica_type)):
            yield Replica(replica_type, index)


def compare(job: PyTorchJob, pods: tuple[Pod, ...], held: frozenset[Replica] = frozenset()) -> ReplicaComparison:
    """Match pods to replicas, without those that are held; a pod without our labels is ignored."""
    present: dict[Replica, Pod] = {}
    leaving: dict[Replica, Pod] = {}
    surplus: list[tuple[int, Pod]] = []
    for pod in pods:
        if pod.replica_type is None or pod.index is None:
            continue
        if pod.index >= count(job, pod.replica_type) or Replica(pod.replica_type, pod.index) in held:
            surplus.append((pod.index, pod))
        elif pod.name == names.pod_name(job.metadata.name, pod.replica_type, pod.index):
            place = leaving if _from_before_the_resume(job, pod) else present
            place[Replica(pod.replica_type, pod.index)] = pod
    ends = _is_about_to_end(job, present)
    missing = tuple(
        replica
        for replica in wanted(job)
        if replica not in present
        and replica not in leaving
        and replica not in held
        and not (ends and replica.type is ReplicaType.WORKER)  # a new worker would wait for no one
    )
    highest_first = sorted(surplus, key=lambda item: (-item[0], item[1].name))
    return ReplicaComparison(present, missing, tuple(pod for _, pod in highest_first), held, tuple(leaving.values()))


def _is_about_to_end(job: PyTorchJob, present: dict[Replica, Pod]) -> bool:
    """Whether a worker of an elastic job has succeeded: then the others succeed too."""
    if job.spec.elastic_policy is None:
        return False
    return any(pod.succeeded for other, pod in present.items() if other.type is ReplicaType.WORKER)


def _from_before_the_resume(job: PyTorchJob, pod: Pod) -> bool:
    """Whether a suspension deletes the pod, also if the job has been resumed since: that is not a failure.

    Applies only to jobs that were suspended, because the two times come from different clocks.
    """
    if not pod.deleting or job.status.condition(ConditionType.SUSPENDED) is None:
        return False
    if job.status.holds(ConditionType.SUSPENDED):
        return True
    resumed_at = job.status.start_time
    return pod.created_at is not None and resumed_at is not None and pod.created_at < resumed_at
