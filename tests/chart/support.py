"""What the tests on a real API server share."""

from collections.abc import Callable
from typing import Any

from tests import waiting
from tests.apiserver.cluster import ControlPlane

NAME = "pytorchjob-operator"
SPACE = "pytorchjob-system"
NEEDS_NODES = "rollout status"
"""What would wait for a pod of the operator: no kubelet starts one here."""
CRD = "pytorchjobs.kubeflow.org"


def until(holds: Callable[[], object]) -> None:
    """Wait for what kubectl is asked for: each question is a process."""
    waiting.until(holds, every=0.3)


def served(plane: ControlPlane) -> bool:
    """Whether the API server serves PyTorchJobs, which takes a moment after their definition is there."""
    return plane.kubectl("get", "ptj", "-A").returncode == 0


def at(value: Any, path: str) -> Any:
    """The part of an object at a path such as `spec.containers.0.name`."""
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def environment(container: dict[str, Any], space: str = SPACE) -> dict[str, str]:
    """A container's variables as the kubelet sets them, in pods of this namespace."""
    made: dict[str, str] = {}
    for variable in container["env"]:
        # The API server leaves out the value of an empty variable.
        value = space if "valueFrom" in variable else variable.get("value", "")
        for name, known in made.items():
            value = value.replace(f"$({name})", known)
        made[variable["name"]] = value
    return made


def job(name: str, **replicas: int) -> dict[str, Any]:
    # These API servers name no service account by themselves, and a pod with a token of one has to.
    containers = [{"name": "pytorch", "image": "pytorchjob/examples:dev"}]
    template = {"spec": {"containers": containers, "serviceAccountName": "default"}}
    specs = {role: {"replicas": count, "template": template} for role, count in replicas.items()}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    return {**kind, "metadata": {"name": name, "namespace": "training"}, "spec": {"pytorchReplicaSpecs": specs}}
