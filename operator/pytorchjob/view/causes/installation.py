"""The operator's installation: the definition, the pods, the Lease; and jobs that no operator serves."""

from collections.abc import Iterator

from pytorchjob.view import reading
from pytorchjob.view.causes import handover
from pytorchjob.view.causes.cause import Cause, CauseEvidence, Finding, Remedy, Symptom
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_operator.names import GROUP, PLURAL, Reason

_INSTALL = "helm upgrade --install pytorchjob-operator CHART --namespace pytorchjob-system --create-namespace --wait"
_PODS = "kubectl get pods --all-namespaces -l app.kubernetes.io/name=pytorchjob-operator"
INSTALL, SEE_PODS = Remedy("Install the operator.", _INSTALL), Remedy("See its pods.", _PODS)

NOT_INSTALLED = Cause(
    "DefinitionMissing",
    Symptom.NO_REACTION,
    'kubectl reports `the server doesn\'t have a resource type "pytorchjobs"`.',
    "The cluster does not know PyTorchJobs: the resource definition is not installed.",
    (
        Remedy("Install the operator; its chart brings the definition.", _INSTALL),
        Remedy("docs/installing.md has the other ways."),
    ),
)
DEFINITION_BROKEN = Cause(
    "DefinitionNotServed",
    Symptom.NO_REACTION,
    "The custom resource definition is not `Established`.",
    "The API server does not serve the definition of PyTorchJobs.",
    (
        Remedy("Read its conditions.", f"kubectl describe crd {PLURAL}.{GROUP}"),
        Remedy("Install it again.", _INSTALL),
    ),
)
NO_OPERATOR = Cause(
    "OperatorMissing",
    Symptom.NO_REACTION,
    "There is no Deployment of the operator.",
    "No operator is installed: nothing acts on PyTorchJobs.",
    (INSTALL,),
)
OPERATOR_DOWN = Cause(
    "OperatorDown",
    Symptom.NO_REACTION,
    "The operator's pods are not ready, or its Lease is old.",
    "The operator does not run: {words}.",
    (
        SEE_PODS,
        Remedy(
            "Read why.", "kubectl describe pods -n {operator_namespace} -l app.kubernetes.io/name=pytorchjob-operator"
        ),
        Remedy("Read its log.", "kubectl logs -n {operator_namespace} deployment/{deployment} --tail=50"),
    ),
)
NOT_SERVED = Cause(
    "NamespaceNotServed",
    Symptom.NO_REACTION,
    "The job has no condition, and the operator's `watchNamespaces` does not have its namespace.",
    "The operator serves the namespaces {served} only, and the job is in {namespace}.",
    (
        Remedy(
            "Add the namespace.",
            "helm upgrade {deployment} CHART -n {operator_namespace} --reuse-values"
            " --set 'watchNamespaces={{{served},{namespace}}}'",
        ),
        Remedy("Or create the job in a namespace that is served.", "kubectl apply -n NAMESPACE -f FILE"),
    ),
)
OTHER_MANAGER = Cause(
    "ManagedByOther",
    Symptom.NO_REACTION,
    "`spec.managedBy` or `spec.runPolicy.managedBy` names another controller.",
    "The job is managed by {manager}, so this operator leaves it alone.",
    (
        Remedy(
            "Delete the job, and create it without `runPolicy.managedBy`.",
            "kubectl delete pytorchjobs/{job} -n {namespace}",
        ),
    ),
)
INVALID_SPEC = Cause(
    "InvalidSpec",
    Symptom.NO_REACTION,
    "The event `InvalidSpec`.",
    "The operator cannot read the job: {words}",
    (
        Remedy("Correct the field that is named.", "kubectl edit pytorchjobs/{job} -n {namespace}"),
        Remedy("Check a file before it is applied.", "pytorchjob validate FILE"),
    ),
)
_SILENCE_SECONDS = 9.0
"""After this time without a reaction, the silence alone is reported."""
NO_REACTION = Cause(
    "JobNotAccepted",
    Symptom.NO_REACTION,
    f"The job has no condition after {_SILENCE_SECONDS:g} s, and this person may not read the operator's objects.",
    "No operator has reacted to the job for {seconds} s.",
    (
        Remedy("See whether the operator runs, or ask an administrator.", _PODS),
        Remedy("Read its log.", "kubectl logs -n pytorchjob-system deployment/pytorchjob-operator --tail=50"),
    ),
)
CAUSES = (
    NOT_INSTALLED,
    DEFINITION_BROKEN,
    NO_OPERATOR,
    OPERATOR_DOWN,
    NOT_SERVED,
    OTHER_MANAGER,
    INVALID_SPEC,
    NO_REACTION,
)
OWN_MANAGERS = ("", "kubeflow.org/training-operator")
_REACTION_SECONDS = 5.0
"""An operator that runs reacts to a new job within this time."""


def find(seen: Seen) -> Iterator[Finding]:
    """Yield what is wrong with the installation, or why this job is not served."""
    if seen.operator.installed is False:
        yield Finding(NOT_INSTALLED, {}, (CauseEvidence("the API server", f"it does not serve {PLURAL}.{GROUP}"),))
        return
    broken = _unserved(seen.operator.definition)
    if broken:
        yield Finding(DEFINITION_BROKEN, {}, (CauseEvidence("the definition", broken),))
        return
    if not seen.job:
        yield from _not_running(seen)
    elif not seen.ended and not reading.deleting(seen.job):
        yield from _of_job(seen)


def _of_job(seen: Seen) -> Iterator[Finding]:
    fields = {"spec": reading.part(seen.job, "spec"), "spec.runPolicy": reading.part(seen.job, "spec", "runPolicy")}
    named = [(f"{field}.managedBy", str(found.get("managedBy") or "")) for field, found in fields.items()]
    for field, manager in [each for each in named if each[1] not in OWN_MANAGERS][:1]:
        evidence = CauseEvidence("the job", f"{field} is {manager}")
        yield Finding(OTHER_MANAGER, {"manager": manager}, (evidence,))
        return
    silent, behind = untouched_for(seen), is_behind(seen)
    invalid = next((e for e in seen.events_of(seen.job) if e.get("reason") == Reason.INVALID), None)
    if invalid is not None and (silent or behind):
        words = reading.line_of(invalid.get("message"))
        yield Finding(INVALID_SPEC, {"words": words}, (CauseEvidence("event InvalidSpec", words),))
        return
    waits = silent >= _REACTION_SECONDS
    if not waits and not behind:
        return
    down = next(_not_running(seen), None)
    found = down or (next(_elsewhere(seen), None) if waits else None)
    if found is not None:
        yield found
    elif silent >= _SILENCE_SECONDS and seen.operator.deployments is None and seen.operator.leases is None:
        seconds = f"{silent:.0f}"
        yield Finding(
            NO_REACTION, {"seconds": seconds}, (CauseEvidence("the job", "it has no condition of this spec"),)
        )


def is_behind(seen: Seen) -> bool:
    """Whether the status is about an older spec, or pods are missing: then an operator that runs has work to do."""
    if not seen.status or seen.suspended or not seen.readable:
        return False
    generation, observed = reading.part(seen.job, "metadata").get("generation"), seen.status.get("observedGeneration")
    stale = generation is not None and observed is not None and generation != observed
    explained = seen.has("ReplicaFailure") or seen.has("Waiting")
    return stale or (not explained and seen.lacks_pods())


def untouched_for(seen: Seen) -> float:
    """Return for how many seconds the job has waited for its first status; 0 once it has one."""
    return 0.0 if reading.items(seen.job, "status", "conditions") else seen.age()


def _not_running(seen: Seen) -> Iterator[Finding]:
    """Yield that no operator runs, if the objects that can be read prove it."""
    deployments, leases = seen.operator.deployments, seen.operator.leases
    if by_v1 := next(handover.replaces(seen), None):
        yield by_v1
    elif any(seen.operator.is_led(lease, seen.now) for lease in leases or ()):
        return
    elif deployments and not any(map(handover.runs, deployments)):
        yield _down(deployments[0])
    elif deployments is not None and not deployments and _nothing_left(seen):
        yield Finding(
            NO_OPERATOR, {}, (CauseEvidence("the cluster", "no Deployment of the operator in any namespace"),)
        )
    elif leases and all(reading.is_old(lease, seen.now) or seen.operator.has_no_pod(lease) for lease in leases):
        yield _without_leader(deployments[0] if deployments else None, leases[0])


def _nothing_left(seen: Seen) -> bool:
    """Whether, without a Deployment, nothing else shows an operator: no pod; or no Lease, and a job that it ignores."""
    if seen.operator.pods is not None:
        return not seen.operator.pods
    return not seen.operator.leases and not reading.items(seen.job, "status", "conditions")


def _down(deployment: Object) -> Finding:
    status = reading.part(deployment, "status")
    words = f"{reading.available(deployment)} are available"
    problem = next((entry for entry in reading.items(status, "conditions") if entry.get("status") == "False"), {})
    detail = reading.line_of(problem.get("message"))
    evidence = CauseEvidence(f"deployment {reading.name_of(deployment)}", f"{words}{f': {detail}' if detail else ''}")
    return Finding(OPERATOR_DOWN, {**handover.where(deployment), "words": words}, (evidence,))


def _without_leader(deployment: Object | None, lease: Object) -> Finding:
    spec = reading.part(lease, "spec")
    holder = spec.get("holderIdentity") or "no pod"
    words = f"its Lease was last renewed at {spec.get('renewTime') or 'no time'}, by {holder}"
    values = handover.where(deployment or lease)
    return Finding(
        OPERATOR_DOWN, {**values, "words": words}, (CauseEvidence(f"lease {reading.name_of(lease)}", words),)
    )


def _elsewhere(seen: Seen) -> Iterator[Finding]:
    """Yield that every operator serves other namespaces only."""
    served = [handover.served_namespaces(deployment) for deployment in seen.operator.deployments or ()]
    if served and all(names and seen.namespace not in names for names in served):
        listed = ",".join(sorted({name for names in served for name in names}))
        deployment = (seen.operator.deployments or ())[0]
        evidence = CauseEvidence(f"deployment {reading.name_of(deployment)}", f"{handover.NAMESPACES} is {listed}")
        yield Finding(NOT_SERVED, {**handover.where(deployment), "served": listed}, (evidence,))


def _unserved(definition: Object | None) -> str:
    """Return why the API server does not serve the definition; empty if it does, or if that is unknown."""
    if not definition:
        return ""
    problem = reading.condition(definition, "Established", "False") or reading.condition(
        definition, "NamesAccepted", "False"
    )
    return reading.line_of(problem.get("message") or problem.get("reason")) if problem else ""
