"""The pod's credential: a service account token for the coordinator alone, in a volume that the kubelet renews.

The cluster's certificates lie beside it: by them the agent knows the API server, also in a pod that mounts no service
account. Kubernetes keeps them in each namespace.

The token names the pod by uid and cannot be read through the API server. Its audience is the operator's own, so the API
server refuses it. Only container `pytorch` mounts the volume, read-only. Pod Security `restricted` allows it.
"""

from collections.abc import Mapping
from typing import Any

from pytorchjob_agent.contract.coordinator_endpoint import CLUSTER_CA_FILE
from pytorchjob_operator import names

DIRECTORY = "/var/run/secrets/pytorchjob.kubeflow.org"
FILE = f"{DIRECTORY}/token"
VOLUME = "pytorchjob-token"
CLUSTER_CA = "kube-root-ca.crt"
"""The ConfigMap with the cluster's certificates that Kubernetes makes in each namespace."""
LIFE_SECONDS = 3600
"""The kubelet renews a token after 80 % of its life. An outage of the API server may outlive the rest: the operator
accepts expired tokens while it cannot reach the API server either (`app/pod_identity`)."""


def into(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod with the volume."""
    containers = [
        _mounted(container) if container.get("name") == names.CONTAINER else container
        for container in pod["containers"]
    ]
    return {**pod, "containers": containers, "volumes": [*(pod.get("volumes") or ()), _volume()]}


def _mounted(container: Mapping[str, Any]) -> dict[str, Any]:
    mount = {"name": VOLUME, "mountPath": DIRECTORY, "readOnly": True}
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), mount]}


def _volume() -> dict[str, Any]:
    token = {"audience": names.TOKEN_AUDIENCE, "expirationSeconds": LIFE_SECONDS, "path": FILE.rpartition("/")[2]}
    items = [{"key": CLUSTER_CA_FILE, "path": CLUSTER_CA_FILE}]
    authorities = {"name": CLUSTER_CA, "items": items, "optional": True}  # a pod without them starts all the same
    return {"name": VOLUME, "projected": {"sources": [{"serviceAccountToken": token}, {"configMap": authorities}]}}
