"""Reserve pods: a place on another node for a pod that may be lost soon (spec.agent.reservePods).

While the workers train on, the autoscaler brings a node, the scheduler keeps the place, and the kubelet pulls the
image. Once the name of the lost pod is free, the reserve pod is deleted. When that is gone, the replica's new pod is
created, and prefers its node. A reserve pod is no replica: it has a label of its own, and no other policy counts it.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob, RestartPolicy
from pytorchjob_operator.names import EventType, Reason
from pytorchjob_operator.observed import Observed, Options, Pod, PodPhase
from pytorchjob_operator.plan import gang, job_limits, queue, replicas, reserve_pod, threats
from pytorchjob_operator.plan.context import Reserves
from pytorchjob_operator.plan.replicas import Replica, ReplicaComparison
from pytorchjob_operator.plan.writes import CreateReserve, Event

END_SECONDS = 5
"""How long a replica's new pod waits after the grace period of its reserve pod, whose resources it takes."""
_ALIVE = (PodPhase.PENDING, PodPhase.RUNNING)


def decide(seen: Observed, job: PyTorchJob, compared: ReplicaComparison) -> Reserves:
    """Decide about the reserve pods of a job that has not ended."""
    found = {pod.reserve_for: pod for pod in seen.pods if pod.reserve_for}
    most = 0 if _unsupported(job, seen.options) else wanted(job)
    if not (most or found or seen.reserved):
        return Reserves()
    missing = {names.pod_name(job.metadata.name, place.type, place.index): place for place in compared.missing}
    known = {**seen.reserved, **{name: pod.node for name, pod in found.items() if pod.node and pod.phase in _ALIVE}}
    without = [each for each in _threatened(seen, job, compared) if each[1].name not in found] if most else []
    times = [seen.postponed.get(names.reserve_name(pod.name)) for _, pod, _ in without]
    free = [each for each, time in zip(without, times, strict=True) if time is None]
    return Reserves(
        threatened=tuple(free[: max(most - len(found), 0)]),
        surplus=tuple(_surplus(seen, compared, missing, found, most)),
        held=dict(_held(seen, missing, found)),
        nodes={name: node for name, node in known.items() if name in missing},
        next_try=min((time for time in times if time is not None), default=None),
    )


def creation(job: PyTorchJob, replica: Replica, pod: Pod, reason: str) -> CreateReserve:
    """Return the creation of the reserve pod of a pod that may be lost for this reason."""
    spec = job.spec.pytorch_replica_specs.get(replica.type)
    assert spec is not None
    body = reserve_pod.build(job, spec.template, pod.name, pod.node)
    words = f"Created pod: {names.reserve_name(pod.name)}: a place on another node, as {pod.name} may be lost: {reason}"
    return CreateReserve(body, Event(Reason.RESERVED, words))


def refused(message: str, minutes: float) -> Event:
    """Return the event of a reserve pod that the API server refuses."""
    what = f"{message}: the job goes on without this reserve pod, the next attempt is in {minutes:.0f} minutes"
    return Event(Reason.RESERVE_REFUSED, what, EventType.WARNING)


def placed(body: dict[str, Any], nodes: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of a replica's pod; it prefers the node on which its place was kept."""
    node = nodes.get(body["metadata"]["name"])
    return body if node is None else reserve_pod.near(body, node)


def problem(job: PyTorchJob, options: Options) -> tuple[Reason, str] | None:
    """Return why the field has no effect, as reason and message of the condition ConfigValid; else None."""
    why = _unsupported(job, options) if wanted(job) else ""
    return (Reason.RESERVE_UNAVAILABLE, f"spec.agent.reservePods has no effect: {why}") if why else None


def wanted(job: PyTorchJob) -> int:
    """Return how many reserve pods the job asks for."""
    return (job.spec.agent.reserve_pods if job.spec.agent is not None else None) or 0


def _unsupported(job: PyTorchJob, options: Options) -> str:
    """Return why the job can have no reserve pods; empty if it can."""
    if gang.scheduler(job, options):
        return f"the gang scheduler {gang.scheduler(job, options)} counts and places the pods of the gang only"
    templates = (spec.template.get("metadata") or {} for _, spec in job.spec.pytorch_replica_specs.items())
    if queue.queue_of(job) or any(names.LABEL_KUEUE_QUEUE in (m.get("labels") or {}) for m in templates):
        return "Kueue has admitted the replicas only, and a reserve pod would exceed the quota of its queue"
    return ""


def _threatened(seen: Observed, job: PyTorchJob, compared: ReplicaComparison) -> Iterator[tuple[Replica, Pod, str]]:
    """Yield the pods that may be lost soon and are replaced then, in the order of ranks."""
    for replica in replicas.wanted(job):
        pod, spec = compared.present.get(replica), job.spec.pytorch_replica_specs.get(replica.type)
        assert spec is not None
        pinned = (spec.template.get("spec") or {}).get("nodeName")
        if pod is None or pinned or replicas.restart_policy(spec) is RestartPolicy.NEVER:
            continue
        reason = threats.find(seen, pod)
        if reason:
            yield replica, pod, reason


def _surplus(
    seen: Observed, compared: ReplicaComparison, missing: Mapping[str, Replica], found: Mapping[str, Pod], most: int
) -> Iterator[tuple[Pod, str]]:
    present = {pod.name: pod for pod in compared.present.values()}
    for name, reserve in found.items():
        reason = f"{name} starts in its place" if name in missing else _needless(seen, present.get(name), most)
        if reason and not reserve.deleting:
            yield reserve, reason


def _needless(seen: Observed, pod: Pod | None, most: int) -> str:
    """Return why this pod needs no reserve; empty if it does. A pod that fails or is being deleted needs it soon."""
    if pod is None or not most or pod.phase in (PodPhase.PENDING, PodPhase.SUCCEEDED):
        return "it is not needed any more"
    return f"{pod.name} is not about to be lost any more" if pod.active and not threats.find(seen, pod) else ""


def _held(
    seen: Observed, missing: Mapping[str, Replica], found: Mapping[str, Pod]
) -> Iterator[tuple[Replica, datetime]]:
    """Yield the replicas that wait until their reserve pod is gone: it still has the resources that they need.

    None waits if its deletion is refused, or if its kubelet should have ended it long ago.
    """
    for name, replica in missing.items():
        reserve = found.get(name)
        if reserve is None or seen.refusal is not None:
            continue
        ends = reserve.deleted_at if reserve.deleting else seen.now + timedelta(seconds=reserve_pod.GRACE_SECONDS)
        due = job_limits.after(ends, END_SECONDS)
        if due is not None and due > seen.now:
            yield replica, due
