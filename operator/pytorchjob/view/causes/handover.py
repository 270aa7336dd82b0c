"""training-operator v1 in the same cluster: it serves the jobs instead of this operator, or together with it."""

import re
from collections.abc import Iterator

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import Cause, CauseEvidence, Finding, Remedy, Symptom
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_operator.names import KIND

SERVED_BY_V1 = Cause(
    "ServedByTrainingOperator",
    Symptom.NO_REACTION,
    "This operator does not run, and training-operator v1 does.",
    "training-operator v1 ({v1_namespace}/{v1_deployment}) serves PyTorchJobs, and this operator does not run.",
    (
        Remedy(
            "If v1 is to serve the jobs, nothing is missing. Read its log if a job does not go on.",
            "kubectl logs -n {v1_namespace} deployment/{v1_deployment} --tail=50",
        ),
        Remedy("docs/migrating.md describes how to move the jobs to this operator."),
    ),
)
TWO_OPERATORS = Cause(
    "TwoOperators",
    Symptom.STOPPING,
    "training-operator v1 and this operator run, and both serve the job's namespace.",
    "Two operators serve the same jobs: this operator ({operator_namespace}/{deployment}) and training-operator v1"
    " ({v1_namespace}/{v1_deployment}).",
    (
        Remedy(
            "To stay with this operator, stop v1; the pods of all jobs go on.",
            "kubectl -n {v1_namespace} scale deployment {v1_deployment} --replicas=0",
        ),
        Remedy("If v1 serves other kinds too, leave PyTorchJobs out of it instead: docs/migrating.md has its flags."),
        Remedy("To go back to v1, stop this operator.", "helm uninstall {deployment} --namespace {operator_namespace}"),
    ),
)
CAUSES = (SERVED_BY_V1, TWO_OPERATORS)
NAMESPACES = "PYTORCHJOB_NAMESPACES"
"""The variable of this operator's Deployment that lists what it serves."""
_V1_NAMESPACE = "KUBEFLOW_NAMESPACE"
_SCHEME, _NAMESPACE = re.compile(r"--?enable-scheme[= ](\S+)"), re.compile(r"--?namespace[= ](\S+)")


def replaces(seen: Seen) -> Iterator[Finding]:
    """Yield that v1 serves the jobs, if it runs and this operator is not meant to."""
    if seen.operator.deployments is not None and not any(map(_is_wanted, seen.operator.deployments)):
        for v1 in _serving(seen):
            yield Finding(SERVED_BY_V1, _of_v1(v1), (_evidence(v1),))
            return


def find(seen: Seen) -> Iterator[Finding]:
    """Yield that v1 and this operator both run and have a namespace in common."""
    here = [seen.namespace] if seen.job else []
    ours = [found for found in seen.operator.deployments or () if runs(found) and _meet(served_namespaces(found), here)]
    for v1 in _serving(seen) if not seen.ended else ():
        for deployment in ours:
            if _meet(served_namespaces(deployment), _v1_namespaces(v1)):
                yield Finding(
                    TWO_OPERATORS, {**where(deployment), **_of_v1(v1)}, (_evidence(deployment), _evidence(v1))
                )
                return


def runs(deployment: Object) -> bool:
    """Whether a Deployment has a pod that is available."""
    return bool(reading.part(deployment, "status").get("availableReplicas"))


def where(deployment: Object) -> dict[str, str]:
    """Return the values of causes that name this operator's Deployment."""
    namespace = reading.namespace_of(deployment) or "pytorchjob-system"
    return {"deployment": reading.name_of(deployment), "operator_namespace": namespace}


def served_namespaces(deployment: Object) -> list[str]:
    """Return the namespaces that this operator's Deployment serves; empty: all."""
    containers = reading.items(deployment, "spec", "template", "spec", "containers")
    text = next(filter(None, (reading.variable(container, NAMESPACES) for container in containers)), "")
    return [name.strip() for name in text.split(",") if name.strip()]


def serves_pytorchjobs(v1: Object) -> bool:
    """Whether a Deployment of v1 serves PyTorchJobs: it serves all kinds, or this is among those that it lists."""
    kinds = _SCHEME.findall(_words(v1))
    return not kinds or KIND.lower() in map(str.lower, kinds)


def _serving(seen: Seen) -> Iterator[Object]:
    """Yield the Deployments of v1 that run and serve the job, or PyTorchJobs of any namespace."""
    for v1 in seen.operator.v1 or ():
        served = _v1_namespaces(v1)
        if runs(v1) and serves_pytorchjobs(v1) and (not seen.job or _meet(served, [seen.namespace])):
            yield v1


def _is_wanted(deployment: Object) -> bool:
    return reading.whole(reading.part(deployment, "spec").get("replicas")) != 0


def _meet(some: list[str], others: list[str]) -> bool:
    """Whether two lists of namespaces have any in common; an empty list has all."""
    return not some or not others or not set(some).isdisjoint(others)


def _v1_namespaces(v1: Object) -> list[str]:
    containers = reading.items(v1, "spec", "template", "spec", "containers")
    given = [reading.variable(container, _V1_NAMESPACE) for container in containers]
    return _NAMESPACE.findall(_words(v1)) or [name for name in given if name]


def _words(deployment: Object) -> str:
    containers = reading.items(deployment, "spec", "template", "spec", "containers")
    return " ".join(word for container in containers for word in reading.words_of(container))


def _of_v1(v1: Object) -> dict[str, str]:
    return {"v1_deployment": reading.name_of(v1), "v1_namespace": reading.namespace_of(v1) or "kubeflow"}


def _evidence(deployment: Object) -> CauseEvidence:
    return CauseEvidence(f"deployment {reading.name_of(deployment)}", f"{reading.available(deployment)} are available")
