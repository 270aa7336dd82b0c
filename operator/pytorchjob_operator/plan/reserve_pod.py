"""The body of a reserve pod: what decides where the replica's pod fits, and a container that only waits.

It has no volumes and no ports, because a claim may allow a single pod. It has no labels and annotations of the
template, because Services and sidecar injectors select by them, and no token of the API server. All containers run the
main container's image with its security context, so Pod Security admits it if it admits the replica's pod.
"""

from collections.abc import Mapping
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob, main_container
from pytorchjob_operator.plan import node_affinity, owner

LIFE_SECONDS = 7200
"""How long it may keep its place: nodes stay cordoned for days, and managed drains take an hour."""
GRACE_SECONDS = 1
"""With 0, the API server would forget the pod before its kubelet has freed the devices."""
_HOLD = ["sh", "-c", "trap 'exit 0' TERM; sleep 86400 & wait $!"]
_OF_POD = (
    "affinity",
    "hostUsers",
    "imagePullSecrets",
    "nodeSelector",
    "preemptionPolicy",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "tolerations",
    "topologySpreadConstraints",
)
"""The fields by which a pod is scheduled, admitted, and gets its images."""
_OF_CONTAINER = ("image", "imagePullPolicy", "securityContext")
Json = Mapping[str, Any]


def build(job: PyTorchJob, template: Json, pod: str, node: str) -> dict[str, Any]:
    """Build the reserve pod of a replica's pod that runs on this node."""
    given: Json = template.get("spec") or {}
    kept = {field: given[field] for field in _OF_POD if field in given}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.reserve_name(pod),
            "namespace": job.metadata.namespace,
            "labels": {names.LABEL_OPERATOR_NAME: names.CONTROLLER, names.LABEL_RESERVE_FOR: pod},
            "ownerReferences": owner.references(job),
        },
        "spec": {
            **kept,
            "affinity": node_affinity.elsewhere(given.get("affinity") or {}, node),
            "containers": _containers(template, given),
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIFE_SECONDS,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
        },
    }


def near(body: Json, node: str) -> dict[str, Any]:
    """Return the body of a pod that prefers this node, beside its other preferences."""
    return {**body, "spec": node_affinity.prefer(body["spec"], [node_affinity.field("In", node)])}


def _containers(template: Json, given: Json) -> list[dict[str, Any]]:
    """Return a container for each container that runs as long as the pod: their requests add up."""
    main = main_container(dict(template)) or {}
    shared = {field: main[field] for field in _OF_CONTAINER if field in main}
    sidecars = [each for each in given.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    return [
        {"name": each["name"], **shared, "command": _HOLD, "resources": each.get("resources") or {}}
        for each in (*(given.get("containers") or ()), *sidecars)
    ]
