"""Adopts pods that training-operator v1 created (docs/compatibility.md), or that were created without the coordinator.

A pod of v1 has no name in the job's one Service: it is reachable, and reaches others, only by v1's Service of each
replica. While such a pod exists, new pods use v1's Services, addresses and rendezvous id. While a pod that was created
without the coordinator runs, new pods do without it too. All other policies treat these pods like any pod.

A take-over is reported once, because v1 never writes `observedGeneration`: the first status of this operator sets it.
"""

from collections.abc import Iterator
from dataclasses import replace

from pytorchjob_operator.model import JobStatus
from pytorchjob_operator.names import Reason
from pytorchjob_operator.observed import Observed, Pod, PodPhase
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.replicas import ReplicaComparison
from pytorchjob_operator.plan.writes import Event

_UNFINISHED = (PodPhase.PENDING, PodPhase.RUNNING)


def adopt(seen: Observed, compared: ReplicaComparison) -> Observed:
    """Return the observation with the options that the existing pods need."""
    options = seen.options
    if any(pod.anonymous for pod in compared.present.values()):
        options = replace(options, replica_services=True, legacy=True)
    if any(pod.without_coordinator for pod in unfinished(compared)):
        options = replace(options, coordinator=None)
    return seen if options is seen.options else replace(seen, options=options)


def unfinished(compared: ReplicaComparison) -> list[Pod]:
    """Return the job's pods that train, or will: new pods have to fit them."""
    return [pod for pod in compared.present.values() if pod.phase in _UNFINISHED and not pod.deleting]


def events(context: Context, status: JobStatus | None) -> Iterator[Event]:
    """Yield that the job is taken over, if this status is the first of this operator and pods of v1 continue."""
    stored = context.seen.job.status
    if status is None or status.observed_generation is None:
        return
    if not stored.conditions or stored.observed_generation is not None:
        return
    staying = [
        pod for pod in context.compared.present.values() if pod.anonymous and not pod.failed and not pod.deleting
    ]
    if staying:
        pods = f"{len(staying)} pod{'' if len(staying) == 1 else 's'}"
        what = f"PyTorchJob {context.job.metadata.name} continues with {pods} that training-operator v1 created"
        yield Event(Reason.TAKEN_OVER, f"{what}; none was created again.")
