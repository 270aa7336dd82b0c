"""Adopts pods that training-operator v1 created (contract A.6, A.7), or that were created without the coordinator.

A pod of v1 has no name in the job's one Service: it is reachable, and reaches others, only by v1's Service of each
replica. While such a pod exists, new pods use v1's Services, addresses and rendezvous id. While a pod that was created
without the coordinator runs, new pods do without it too. All other policies treat these pods like any pod.
"""

from dataclasses import replace

from pytorchjob_operator.observed import Observed, PodPhase
from pytorchjob_operator.plan.replicas import ReplicaComparison

_UNFINISHED = (PodPhase.PENDING, PodPhase.RUNNING)


def adopt(seen: Observed, compared: ReplicaComparison) -> Observed:
    """Return the observation with the options that the existing pods need."""
    options = seen.options
    if any(pod.anonymous for pod in compared.present.values()):
        options = replace(options, replica_services=True, legacy=True)
    if any(
        pod.without_coordinator and pod.phase in _UNFINISHED and not pod.deleting for pod in compared.present.values()
    ):
        options = replace(options, coordinator=None)
    return seen if options is seen.options else replace(seen, options=options)
