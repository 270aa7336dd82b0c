"""The decision about one job: `make_plan(Observed) -> Plan`. Pure: no client, no clock, no memory.

The policies in their order: is the job ours and unfinished; how do its pods compare with what it wants; has it ended;
what must be written; what does the status say. Everything is derived anew from what is observed, so a crash between
two writes needs no special code.
"""

from collections.abc import Iterator

from pytorchjob_operator import names
from pytorchjob_operator.model import ConditionType, ManagedBy, PyTorchJob, with_defaults
from pytorchjob_operator.observed import Observed, Service
from pytorchjob_operator.plan import events, outcome, pods, replicas, restart, service, status
from pytorchjob_operator.plan.outcome import Outcome, Phase
from pytorchjob_operator.plan.replicas import Comparison
from pytorchjob_operator.plan.restart import Decision
from pytorchjob_operator.plan.writes import CreatePod, CreateService, DeletePod, Plan, Write

__all__ = ["Plan", "make_plan"]


def make_plan(seen: Observed) -> Plan:
    """Decide what to do about one job, from one observation of it."""
    hands_off = _hands_off(seen.job)
    if hands_off:
        return Plan(reason=hands_off)
    job = with_defaults(seen.job)
    compared = replicas.compare(job, seen.pods)
    counts = outcome.count(job, compared)
    result = outcome.decide(job, compared, counts)
    writes = () if result.phase in (Phase.SUCCEEDED, Phase.FAILED) else tuple(_writes(seen, job, compared))
    new = status.build_status(seen, result, counts)
    due = status.write_at(seen, new, counts)
    write_now = due is not None and due <= seen.now
    put_off = None if write_now else due
    return Plan(
        reason=_reason(result, compared, writes),
        writes=writes,
        status=new if write_now else None,
        events=tuple(events.build_events(seen.job, result, writes, new if write_now else None)),
        status_due=put_off,
        wake_at=put_off,
    )


def _hands_off(job: PyTorchJob) -> str | None:
    """Why the job is not to be touched at all, if so."""
    if job.metadata.deletion_timestamp:
        return "the job is being deleted: the garbage collector removes its children"
    if job.spec.run_policy.managed_by not in (None, ManagedBy.OPERATOR):
        return f"the job is managed by {job.spec.run_policy.managed_by}"
    for kind in (ConditionType.SUCCEEDED, ConditionType.FAILED):
        if job.status.holds(kind):
            return f"the job has {kind.lower()}"
    return None


def _writes(seen: Observed, job: PyTorchJob, compared: Comparison) -> Iterator[Write]:
    """Service first, then what must go, then what is missing, in the order of ranks."""
    if not _has_service(job, seen.services):
        yield CreateService(service.build_service(job))
    for pod in compared.surplus:
        if not pod.deleting:
            yield DeletePod(pod.name, pod.uid, "the job was scaled down")
    for replica, pod in compared.present.items():
        spec = job.spec.pytorch_replica_specs.get(replica.type)
        assert spec is not None
        decision, reason = restart.decide(replicas.restart_policy(spec), pod)
        if decision is Decision.REPLACE:
            yield DeletePod(pod.name, pod.uid, reason)
    for replica in compared.missing:
        yield CreatePod(pods.build_pod(job, replica, seen.options))


def _has_service(job: PyTorchJob, services: tuple[Service, ...]) -> bool:
    name = names.service_name(job.metadata.name)
    return any(one.name == name for one in services)


def _reason(result: Outcome, compared: Comparison, writes: tuple[Write, ...]) -> str:
    have, missing, surplus = len(compared.present), len(compared.missing), len(compared.surplus)
    what = f"{len(writes)} writes" if writes else "nothing to write"
    return f"{result.phase}: {have} pods there, {missing} missing, {surplus} surplus; {what}"
