"""Deprecated fields: accepted as before, with the warning of training-operator v1's webhook.

In a cluster a ValidatingAdmissionPolicy of the chart and of the manifests warns at `kubectl apply`. A test compares it
with this list. `pytorchjob validate` and `pytorchjob run` warn by themselves.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pytorchjob_operator.model.job import PyTorchJob
from pytorchjob_operator.model.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Deprecated:
    """One deprecated field."""

    warning: str
    cel: str
    """True for an object that does not use the field; an API server evaluates it."""
    used: Callable[[JobSpec], bool]


DEPRECATED = (
    Deprecated(
        warning="spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead",
        cel="!has(object.spec) || !has(object.spec.elasticPolicy) || !has(object.spec.elasticPolicy.nProcPerNode)",
        used=lambda spec: spec.elastic_policy is not None and spec.elastic_policy.n_proc_per_node is not None,
    ),
)


def warnings(job: PyTorchJob) -> Iterator[str]:
    """Yield a warning for each deprecated field that the job uses."""
    return (field.warning for field in DEPRECATED if field.used(job.spec))
