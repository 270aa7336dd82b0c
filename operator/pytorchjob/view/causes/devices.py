"""Devices of running pods that their node reports as unhealthy: `allocatedResourcesStatus`, beta in Kubernetes 1.36."""

from collections.abc import Iterator

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import Cause, CauseEvidence, Finding, Remedy, Symptom
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen

UNHEALTHY = Cause(
    "DeviceUnhealthy",
    Symptom.STOPPING,
    "`kubectl get pod -o yaml` shows `health: Unhealthy` in `allocatedResourcesStatus`.",
    "The node {node} reports that the {resource} of {pod} is unhealthy.",
    (
        Remedy("Keep new pods off the node until it is repaired.", "kubectl cordon {node}"),
        Remedy(
            "Move this pod to another node: the script can save first, and the operator creates it again.",
            "kubectl delete pod {pod} -n {namespace}",
        ),
        Remedy("See what the node reports of its devices.", "kubectl describe node {node}"),
    ),
)
CAUSES = (UNHEALTHY,)


def find(seen: Seen) -> Iterator[Finding]:
    """Yield the pods that run with an unhealthy device, each once."""
    for pod in seen.living_pods():
        found = next(_unhealthy(pod), None)
        if found is not None:
            resource, words = found
            name = reading.name_of(pod)
            values = {"node": reading.node_of(pod) or "unknown", "resource": resource, "pod": name}
            yield Finding(UNHEALTHY, values, (CauseEvidence(f"pod {name}, allocatedResourcesStatus", words),), (name,))


def _unhealthy(pod: Object) -> Iterator[tuple[str, str]]:
    """Yield the resource of each unhealthy device, and what the kubelet reports of it."""
    for container in reading.items(pod, "status", "containerStatuses"):
        for resource in reading.items(container, "allocatedResourcesStatus"):
            for device in reading.items(resource, "resources"):
                if device.get("health") == "Unhealthy":
                    name = str(resource.get("name") or "device")
                    words = f"{name} {device.get('resourceID') or ''}: Unhealthy {device.get('message') or ''}"
                    yield name, reading.line_of(words, 200)
