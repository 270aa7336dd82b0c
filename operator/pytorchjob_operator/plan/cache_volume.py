"""The place for the caches of compilers and libraries (spec.agent.caches): a volume of the pod in container `pytorch`.

It is on the node's disk and has no size limit of its own, because the kubelet evicts a pod that exceeds one. A template
that mounts a volume of its own there keeps it.
"""

from collections.abc import Mapping
from typing import Any

from pytorchjob_agent.contract.cache_rules import CacheRules
from pytorchjob_operator import names
from pytorchjob_operator.model import main_container

DIRECTORY = "/var/cache/pytorchjob"
VOLUME = "pytorchjob-caches"


def rules(template: Mapping[str, Any]) -> CacheRules:
    """Return the settings as the agent reads them."""
    return CacheRules(DIRECTORY, str((main_container(dict(template)) or {}).get("image") or ""))


def into(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod with the volume, unless its container mounts another one there."""
    mounts = (main_container({"spec": dict(pod)}) or {}).get("volumeMounts") or ()
    if any(str(mount.get("mountPath")).rstrip("/") == DIRECTORY for mount in mounts):
        return dict(pod)
    containers = [
        _mounted(container) if container.get("name") == names.CONTAINER else container
        for container in pod["containers"]
    ]
    return {**pod, "containers": containers, "volumes": [*(pod.get("volumes") or ()), {"name": VOLUME, "emptyDir": {}}]}


def _mounted(container: Mapping[str, Any]) -> dict[str, Any]:
    mount = {"name": VOLUME, "mountPath": DIRECTORY}
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), mount]}
