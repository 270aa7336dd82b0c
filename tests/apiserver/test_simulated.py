"""Simulated nodes: a pod runs, ends as told, and leaves."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.cluster import ControlPlane
from tests.apiserver.simulated import EXITS_WITH, start_nodes
from tests.waiting import until

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("simulated")) as plane:
        start_nodes(plane, count=2)
        yield plane


def pod(name: str, **annotations: str) -> dict[str, Any]:
    metadata = {"name": name, "annotations": annotations}
    spec = {"containers": [{"name": "pytorch", "image": "none"}], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("annotations", "phase"),
    [
        pytest.param({}, "Running", id="a pod runs"),
        pytest.param({EXITS_WITH: "0"}, "Succeeded", id="a pod that exits with 0 succeeds"),
        pytest.param({EXITS_WITH: "3"}, "Failed", id="a pod that exits with 3 fails"),
    ],
)
def test_a_pod_reaches_its_phase(nodes: ControlPlane, annotations: dict[str, str], phase: str) -> None:
    assert nodes.apply(pod(f"pod-{phase.lower()}", **annotations)).returncode == 0
    until(lambda: nodes.get("pod", f"pod-{phase.lower()}")["status"].get("phase") == phase)


def test_a_deleted_pod_leaves(nodes: ControlPlane) -> None:
    nodes.apply(pod("leaver"))
    until(lambda: nodes.get("pod", "leaver")["status"].get("phase") == "Running")
    assert nodes.kubectl("delete", "pod", "leaver", "--timeout=30s").returncode == 0
