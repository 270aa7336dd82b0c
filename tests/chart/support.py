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


def environment(container: dict[str, Any], space: str = SPACE) -> dict[str, str]:
    """A container's variables as the kubelet sets them, in pods of this namespace."""
    made: dict[str, str] = {}
    for one in container["env"]:
        # The API server leaves out the value of an empty variable.
        value = space if "valueFrom" in one else one.get("value", "")
        for name, known in made.items():
            value = value.replace(f"$({name})", known)
        made[one["name"]] = value
    return made


def job(name: str, **replicas: int) -> dict[str, Any]:
    # These API servers name no service account by themselves, and a pod with a token of one has to.
    containers = [{"name": "pytorch", "image": "pytorchjob/examples:dev"}]
    template = {"spec": {"containers": containers, "serviceAccountName": "default"}}
    specs = {role: {"replicas": count, "template": template} for role, count in replicas.items()}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    return {**kind, "metadata": {"name": name, "namespace": "training"}, "spec": {"pytorchReplicaSpecs": specs}}
