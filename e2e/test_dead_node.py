"""A node dies for good as far as the cluster can see: its pod goes by force and comes again on another node."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.faults import kill_node, on_kind, start_node
from e2e.kubectl import Kubectl, until

NODE = f"{os.environ.get('CLUSTER', 'pytorchjob')}-worker3"
HOSTNAME = "kubernetes.io/hostname"
SLEEP = "import time; time.sleep(3600)"
REACH = "import socket; socket.create_connection(('pytorchjob-operator.pytorchjob-system', 8080), 5)"

pytestmark = [pytest.mark.alone, pytest.mark.skipif(not on_kind(), reason="kills a node, which is a container")]


def pod_spec(command: str, **fields: Any) -> dict[str, Any]:
    """What Pod Security `restricted` lets through."""
    container = {
        "name": "pytorch",
        "image": "pytorchjob/examples:dev",
        "command": ["python", "-c", command],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    return {"containers": [container], "securityContext": security, "terminationGracePeriodSeconds": 1, **fields}


def job() -> str:
    """The Master keeps away from the node; the worker wants it as long as it is there, and leaves it soon after."""

    def at(operator: str) -> list[dict[str, Any]]:
        return [{"key": HOSTNAME, "operator": operator, "values": [NODE]}]

    away = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": at("NotIn")}]}
    }
    there = [{"weight": 100, "preference": {"matchExpressions": at("In")}}]
    tolerations = [
        {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
        for taint in ("unreachable", "not-ready")
    ]
    master = pod_spec(SLEEP, affinity={"nodeAffinity": away})
    worker = pod_spec(
        SLEEP,
        affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": there}},
        tolerations=tolerations,
    )
    roles = {"Master": {"template": {"spec": master}}, "Worker": {"replicas": 1, "template": {"spec": worker}}}
    return json.dumps(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "lost"},
            "spec": {"pytorchReplicaSpecs": roles},
        }
    )


@pytest.fixture
def node(kubectl: Kubectl) -> Iterator[str]:
    """A node that the test may kill: it is back, and pods on it reach the others, when the test has ended."""
    yield NODE
    start_node(kubectl, NODE)
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": pod_spec(REACH, nodeName=NODE, restartPolicy="OnFailure"),
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(probe))
    until(lambda: phase(kubectl.get("pod", "probe")) == "Succeeded", 120, lambda: kubectl("describe", "pod", "probe"))


def phase(pod: dict[str, Any]) -> str:
    return str(pod["status"].get("phase"))


def worker(kubectl: Kubectl) -> tuple[str, str, str]:
    """Its uid, node and phase."""
    found = [pod for pod in kubectl.pods("lost") if pod["metadata"]["name"] == "lost-worker-0"]
    if not found:
        return "", "", ""
    return found[0]["metadata"]["uid"], found[0]["spec"].get("nodeName", ""), phase(found[0])


def test_a_pod_on_a_dead_node_runs_again_elsewhere(kubectl: Kubectl, node: str) -> None:
    def story() -> str:
        return kubectl.story("lost")

    kubectl("apply", "-f", "-", stdin=job())
    until(lambda: [phase(pod) for pod in kubectl.pods("lost")] == ["Running"] * 2, 90, story)
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kubectl.pods("lost")}
    assert worker(kubectl) == (before["lost-worker-0"], node, "Running")

    kill_node(node)
    until(lambda: forced(kubectl), 300, story)
    until(lambda: worker(kubectl)[2] == "Running" and worker(kubectl)[0] != before["lost-worker-0"], 90, story)
    until(lambda: kubectl.conditions("lost").get("Running") == "True", 60, story)

    (event,) = forced(kubectl)
    assert event["type"] == "Warning"
    assert "Force-deleted pod: lost-worker-0: its grace period ended" in event["message"]
    assert f"node {node} has not been ready for" in event["message"]
    after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kubectl.pods("lost")}
    assert after["lost-master-0"] == before["lost-master-0"]
    assert worker(kubectl)[1] != node


def forced(kubectl: Kubectl) -> list[dict[str, Any]]:
    events = kubectl.get("events", "--field-selector=reason=ForceDeletedPod")["items"]
    return [event for event in events if event["involvedObject"]["kind"] == "PyTorchJob"]
