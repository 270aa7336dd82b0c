"""A job that training-operator v1 started and this operator takes over while it runs (contract A.6, A.7).

Pods made by v1 have no name in the job's one Service: only v1's Service of each replica leads to them, and they know
the others by such names alone. While one of them is there, the job keeps v1's ways: Services and addresses by replica,
and the rendezvous id that v1 gave. It decides nothing about the pods themselves: they are pods like any other.
"""

from dataclasses import replace

from pytorchjob_operator.observed import Observed
from pytorchjob_operator.plan.replicas import Comparison


def adopt(seen: Observed, compared: Comparison) -> Observed:
    """The observation with v1's ways switched on, where a pod of the job needs them."""
    if not any(pod.nameless for pod in compared.present.values()):
        return seen
    return replace(seen, options=replace(seen.options, replica_services=True, beside_v1=True))
