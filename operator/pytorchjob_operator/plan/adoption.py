"""A job whose pods were made by other ways: by training-operator v1 (contract A.6, A.7), or without the coordinator.

Pods made by v1 have no name in the job's one Service: only v1's Service of each replica leads to them, and they know
the others by such names alone. While one of them is there, the job keeps v1's ways: Services and addresses by replica,
and the rendezvous id that v1 gave. Pods that were made before there was a coordinator do not know it either: while one
of them trains, new ones do as it does. It decides nothing about the pods themselves: they are pods like any other.
"""

from dataclasses import replace

from pytorchjob_operator.observed import Observed, PodPhase
from pytorchjob_operator.plan.replicas import Comparison

_GO_ON = (PodPhase.PENDING, PodPhase.RUNNING)


def adopt(seen: Observed, compared: Comparison) -> Observed:
    """The observation with the ways of the pods that are there, where one of them knows no others."""
    options = seen.options
    if any(pod.anonymous for pod in compared.present.values()):
        options = replace(options, replica_services=True, legacy=True)
    if any(pod.without_coordinator and pod.phase in _GO_ON and not pod.deleting for pod in compared.present.values()):
        options = replace(options, coordinator=None)
    return seen if options is seen.options else replace(seen, options=options)
