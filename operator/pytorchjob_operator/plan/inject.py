"""Tier 1: the agent is put into pods whose image knows nothing of it, and unmodified torchrun finds it there.

An init container copies the agent, which is Python files and no more, into a volume; container `pytorch` sees it
read-only, by PYTHONPATH. What is added keeps to Pod Security `restricted`, and leaves the pod's QoS class as it is.
"""

from collections.abc import Mapping
from typing import Any

from pytorchjob_operator import names

DIRECTORY = "/opt/pytorchjob-agent"
INIT_CONTAINER = "pytorchjob-agent-install"
VOLUME = "pytorchjob-agent"
PYTHONPATH = "PYTHONPATH"
MAX_RESTARTS = 1_000_000
"""What torchrun is told: the coordinator counts, and torchrun must not give up before it."""
_SIZE = "16Mi"
_RESOURCES = {"cpu": "250m", "memory": "64Mi"}
_NOBODY = 65532


def into(pod: Mapping[str, Any], image: str) -> dict[str, Any]:
    """The spec of a pod with the agent put into it."""
    containers = [_found(one) if one.get("name") == names.CONTAINER else one for one in pod["containers"]]
    return {
        **pod,
        "initContainers": [_init_container(pod, image), *(pod.get("initContainers") or ())],
        "containers": containers,
        "volumes": [*(pod.get("volumes") or ()), {"name": VOLUME, "emptyDir": {"sizeLimit": _SIZE}}],
    }


def _init_container(pod: Mapping[str, Any], image: str) -> dict[str, Any]:
    return {
        "name": INIT_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["pytorchjob-agent", "install", DIRECTORY],
        "resources": {"requests": _RESOURCES, "limits": _RESOURCES},
        "securityContext": {**_user(pod.get("securityContext") or {}), **_SECURITY},
        "volumeMounts": [{"name": VOLUME, "mountPath": DIRECTORY}],
    }


_SECURITY = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def _user(context: Mapping[str, Any]) -> dict[str, int]:
    """Nobody in particular where the pod runs as root; otherwise the pod's user, or the image's.

    A number where the pod has none would be refused by clusters that give each namespace a range of its own.
    """
    return {"runAsUser": _NOBODY} if context.get("runAsUser") == 0 else {}


def _found(container: Mapping[str, Any]) -> dict[str, Any]:
    """The container with the agent on its Python's path, before what the user has there."""
    env = list(container.get("env") or ())
    own = any(one.get("name") == PYTHONPATH for one in env)
    path = {"name": PYTHONPATH, "value": f"{DIRECTORY}:$({PYTHONPATH})" if own else DIRECTORY}
    mount = {"name": VOLUME, "mountPath": DIRECTORY, "readOnly": True}
    return {**container, "env": [*env, path], "volumeMounts": [*(container.get("volumeMounts") or ()), mount]}
