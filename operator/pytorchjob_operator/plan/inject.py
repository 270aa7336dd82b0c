"""Installs the agent in pods whose image does not contain it; the command stays as it is.

An init container copies the agent, which is only Python files, into a volume. Container `pytorch` mounts the volume
read-only and has it on PYTHONPATH, with the folder of the `sitecustomize` by which the command becomes a member
(`pytorchjob_agent/command/startup`). The additions satisfy Pod Security `restricted` and keep the pod's QoS class.
"""

from collections.abc import Mapping
from typing import Any

from pytorchjob_operator import names

DIRECTORY = "/opt/pytorchjob-agent"
VOLUME = "pytorchjob-agent"
STARTUP = f"{DIRECTORY}/pytorchjob_agent/command/startup"
PYTHONPATH = "PYTHONPATH"
_SIZE = "16Mi"
_RESOURCES = {"cpu": "250m", "memory": "64Mi"}
_NON_ROOT_UID = 65532


def into(pod: Mapping[str, Any], image: str) -> dict[str, Any]:
    """Return the spec of a pod with the agent installed."""
    containers = [
        _with_agent(container) if container.get("name") == names.CONTAINER else container
        for container in pod["containers"]
    ]
    return {
        **pod,
        "initContainers": [_init_container(pod, image), *(pod.get("initContainers") or ())],
        "containers": containers,
        "volumes": [*(pod.get("volumes") or ()), {"name": VOLUME, "emptyDir": {"sizeLimit": _SIZE}}],
    }


def _init_container(pod: Mapping[str, Any], image: str) -> dict[str, Any]:
    return {
        "name": names.AGENT_INSTALL,
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
    """Return a user for a pod that runs as root; otherwise the pod's or the image's user stays.

    Clusters that assign each namespace a range of users would refuse a number for other pods.
    """
    return {"runAsUser": _NON_ROOT_UID} if context.get("runAsUser") == 0 else {}


def _with_agent(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container with the agent first on PYTHONPATH."""
    env = list(container.get("env") or ())
    own = any(variable.get("name") == PYTHONPATH for variable in env)
    agent = f"{STARTUP}:{DIRECTORY}"
    path = {"name": PYTHONPATH, "value": f"{agent}:$({PYTHONPATH})" if own else agent}
    mount = {"name": VOLUME, "mountPath": DIRECTORY, "readOnly": True}
    return {**container, "env": [*env, path], "volumeMounts": [*(container.get("volumeMounts") or ()), mount]}
