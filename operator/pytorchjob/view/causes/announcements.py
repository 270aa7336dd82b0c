"""Running pods that may be lost soon, by what their nodes or they announce. The operator reacts to the same."""

from collections.abc import Iterator
from contextlib import suppress

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import Cause, CauseEvidence, CauseLevel, Finding, Remedy, Symptom, merge
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_operator.node import Node, read_tolerations
from pytorchjob_operator.pod_threat import find_threat

THREATENED = Cause(
    "PodThreatened",
    Symptom.STOPPING,
    "The event `PodThreatened`; or a running pod's node is cordoned, or has a taint that the pod does not tolerate.",
    "{pod} may be lost soon: {words}.",
    (
        Remedy("Training continues. The event `CheckpointSaved` shows that all workers have saved since."),
        Remedy("See what the node announces.", "kubectl describe node {node}"),
        Remedy(
            "Move the pod to another node now: the script can save first, and the operator creates it again.",
            "kubectl delete pod {pod} -n {namespace}",
        ),
    ),
    CauseLevel.CONSEQUENCE,
)
CAUSES = (THREATENED,)


def find(seen: Seen) -> Iterator[Finding]:
    """Yield the pods that run and may be lost soon; nodes count if this person may read them."""
    yield from merge(filter(None, (_threatened(seen, pod) for pod in seen.living_pods() if reading.runs(pod))))


def _threatened(seen: Seen, pod: Object) -> Finding | None:
    name, node = reading.name_of(pod), reading.node_of(pod)
    words = _announced(seen, pod)
    if not words:
        return None
    values = {"pod": name, "node": node or "NODE", "words": words}
    return Finding(THREATENED, values, (CauseEvidence(f"pod {name}", words),), (name,))


def _announced(seen: Seen, pod: Object) -> str:
    """Return what the operator would read of this pod and its node; empty also if an object makes no sense."""
    node = seen.node(reading.node_of(pod))
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        own = find_threat(reading.part(pod, "status"))
        tolerations = read_tolerations(reading.part(pod, "spec"))
        return own or ("" if node is None else Node.from_api(node).threat(tolerations))
    return ""
