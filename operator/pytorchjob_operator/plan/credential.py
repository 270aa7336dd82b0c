"""The pod's credential: a service account token for the coordinator alone, in a volume that the kubelet renews.

The token names the pod by uid and cannot be read through the API server. Its audience is the operator's own, so the API
server refuses it. Only container `pytorch` mounts the volume, read-only. Pod Security `restricted` allows it.
"""

from collections.abc import Mapping
from typing import Any

from pytorchjob_operator import names

DIRECTORY = "/var/run/secrets/pytorchjob.kubeflow.org"
FILE = f"{DIRECTORY}/token"
VOLUME = "pytorchjob-token"
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
    return {"name": VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}}
