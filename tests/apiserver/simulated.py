"""Nodes that do not exist, for a `ControlPlane`: kube-scheduler places pods, kwok says that they run.

A pod whose template carries the annotation `test/exits-with: "<code>"` ends with that code as soon as it runs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.apiserver.cluster import ControlPlane, ControlPlaneError
from tests.waiting import until

EXITS_WITH = "test/exits-with"
_STAGES = Path(__file__).with_name("stages.yaml")
_MARK = "kwok.x-k8s.io/node"


def start_nodes(plane: ControlPlane, count: int = 4) -> None:
    """Starts the scheduler and kwok, makes the nodes, and waits until all of them are ready."""
    missing = [name for name in ("kube-scheduler", "kwok") if not (plane.binaries / name).is_file()]
    if missing:
        raise ControlPlaneError(f"{', '.join(missing)} not found in {plane.binaries}: run `make binaries` first")
    kubeconfig = f"--kubeconfig={plane.kubeconfig}"
    scheduler = (kubeconfig, "--leader-elect=false", "--secure-port=0", *_QUICK, *plane.gates)
    plane.start_program("kube-scheduler", *scheduler)
    plane.start_program(
        "kwok",
        kubeconfig,
        f"--config={_STAGES}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={_MARK}=fake",
        "--server-address=127.0.0.1:0",
    )
    add_nodes(plane, range(count))


def add_nodes(plane: ControlPlane, numbers: Sequence[int]) -> None:
    """Make the nodes with these numbers, and wait until all nodes are ready."""
    made = plane.apply(*map(_node, numbers))
    if made.returncode:
        raise ControlPlaneError(f"nodes: {made.stderr}")
    until(lambda: _ready(plane) >= numbers[-1] + 1)


_QUICK = ("--kube-api-qps=1000", "--kube-api-burst=1000")
"""The scheduler must not be what a benchmark measures."""


def _node(index: int) -> dict[str, Any]:
    name = f"simulated-{index}"
    metadata = {"name": name, "annotations": {_MARK: "fake"}, "labels": {"kubernetes.io/hostname": name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _ready(plane: ControlPlane) -> int:
    conditions = (node["status"].get("conditions", ()) for node in plane.get("nodes")["items"])
    return sum(
        any(condition["type"] == "Ready" and condition["status"] == "True" for condition in found)
        for found in conditions
    )
