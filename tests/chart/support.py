"""What the tests on a real API server share."""

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.apiserver.cluster import ControlPlane

NAME = "pytorchjob-operator"
SPACE = "pytorchjob-system"
CRD = "pytorchjobs.kubeflow.org"


def eventually(true: Callable[[], bool]) -> None:
    for _ in range(150):
        if true():
            return
        time.sleep(0.2)
    pytest.fail("never became true")


def served(plane: ControlPlane) -> bool:
    """Whether the API server serves PyTorchJobs, which takes a moment after their definition is there."""
    return plane.kubectl("get", "ptj", "-A").returncode == 0


def environment(container: dict[str, Any], space: str = SPACE) -> dict[str, str]:
    """A container's variables as the kubelet sets them, in pods of this namespace."""
    made: dict[str, str] = {}
    for one in container["env"]:
        value = one.get("value", space)
        for name, known in made.items():
            value = value.replace(f"$({name})", known)
        made[one["name"]] = value
    return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def job(name: str, **replicas: int) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "pytorchjob/examples:dev"}]}}
    specs = {role: {"replicas": count, "template": template} for role, count in replicas.items()}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    return {**kind, "metadata": {"name": name, "namespace": "training"}, "spec": {"pytorchReplicaSpecs": specs}}
