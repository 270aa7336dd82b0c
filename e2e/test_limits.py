"""The run policy with real pods: a suspension gives everything back, as Kueue needs it; a deadline needs no event."""

import json

import pytest

from e2e.kubectl import Kubectl, until

HOSTNAME = "kubernetes.io/hostname"
SLEEP = "import time; print('here', flush=True); time.sleep(3600)"


def _job(**run_policy: object) -> str:
    container = {
        "name": "pytorch",
        "image": "pytorchjob/examples:dev",
        "command": ["python", "-c", SLEEP],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    role = {"template": {"spec": pod}}
    spec = {"runPolicy": run_policy, "pytorchReplicaSpecs": {"Master": role, "Worker": {**role, "replicas": 2}}}
    return json.dumps(
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "held"}, "spec": spec}
    )


@pytest.fixture
def running(kubectl: Kubectl) -> Kubectl:
    kubectl("apply", "-f", "-", stdin=_job(suspend=False))
    until(lambda: kubectl.conditions("held").get("Running") == "True", 90, lambda: kubectl.story("held"))
    return kubectl


def test_a_suspended_job_holds_nothing_and_lands_by_its_new_node_selector(running: Kubectl) -> None:
    node = next(pod["spec"]["nodeName"] for pod in running.pods("held"))
    running("patch", "ptj", "held", "--type=merge", "-p", json.dumps({"spec": {"runPolicy": {"suspend": True}}}))
    until(lambda: not running.children("held"), 60, lambda: str(running.children("held")))
    assert running.conditions("held") == {"Created": "True", "Running": "False", "Suspended": "True"}

    selected = {"template": {"spec": {"nodeSelector": {HOSTNAME: node}}}}
    admitted = {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": {"Master": selected, "Worker": selected}}
    running("patch", "ptj", "held", "--type=merge", "-p", json.dumps({"spec": admitted}))
    until(lambda: running.conditions("held").get("Running") == "True", 90, lambda: running.story("held"))
    assert running.conditions("held") == {"Created": "True", "Suspended": "False", "Running": "True"}
    until(lambda: [pod["spec"].get("nodeName") for pod in running.pods("held")] == [node] * 3, 60)


def test_a_deadline_stops_the_pods_without_any_event(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=_job(activeDeadlineSeconds=10))
    assert "Failed" in kubectl.finish("held", 60)
    until(lambda: not kubectl.pods("held"), 60, lambda: kubectl.story("held"))
