"""The NetworkPolicy of a job that asks for one: only pods of the same job reach its pods.

It exists before the pods, and is deleted at suspension and at the job's end.
"""

from collections.abc import Mapping
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ChildKind, Reason
from pytorchjob_operator.plan import children

API_VERSION = "networking.k8s.io/v1"


def wanted(job: PyTorchJob) -> dict[str, Any] | None:
    """Return the NetworkPolicy that the job should have now, or None."""
    if job.spec.agent is None or not job.spec.agent.network_policy:
        return None
    selector = {"matchLabels": names.job_labels(job.metadata.name)}
    spec = {
        "podSelector": selector,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": selector}]}],
    }
    return children.build_child(job, API_VERSION, ChildKind.NETWORK_POLICY.kind, spec)


def problem(job: PyTorchJob, unserved: Mapping[ChildKind, str]) -> tuple[Reason, str] | None:
    """Return why the field has no effect, as reason and message of the condition ConfigValid; else None."""
    why = unserved.get(ChildKind.NETWORK_POLICY) if wanted(job) else None
    if not why:
        return None
    return Reason.NETWORK_POLICY_UNAVAILABLE, f"spec.agent.networkPolicy has no effect: {why}"
