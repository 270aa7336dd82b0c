"""The run policy with real pods: a suspension gives everything back, as Kueue needs it; a deadline needs no event."""

import json
from datetime import UTC, datetime

import pytest

from e2e.kubectl import Kubectl, until

HOSTNAME = "kubernetes.io/hostname"
SLEEP = "import time; print('here', flush=True); time.sleep(3600)"


DONE = "print('trained', flush=True)"


def _job(worker: str = SLEEP, master: str = SLEEP, **run_policy: object) -> str:
    """One Master and two workers that run these programs."""
    roles = {"Master": _role(master), "Worker": {**_role(worker), "replicas": 2}}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "held"}}
    return json.dumps({**body, "spec": {"runPolicy": run_policy, "pytorchReplicaSpecs": roles}})


def _role(program: str) -> dict[str, object]:
    container = {
        "name": "pytorch",
        "image": "pytorchjob/examples:dev",
        "command": ["python", "-c", program],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    return {"template": {"spec": pod}}


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


def test_a_deadline_stops_the_pods_without_any_event_and_keeps_the_logs_of_those_that_had_ended(
    kubectl: Kubectl,
) -> None:
    kubectl("apply", "-f", "-", stdin=_job(DONE, suspend=False))
    running = {"held-master-0": "Running", "held-worker-0": "Succeeded", "held-worker-1": "Succeeded"}
    until(lambda: _phases(kubectl) == running, 180, lambda: kubectl.story("held"))
    since = datetime.fromisoformat(kubectl.job("held")["status"]["startTime"])
    deadline = int((datetime.now(UTC) - since).total_seconds()) + 10
    patch = {"spec": {"runPolicy": {"activeDeadlineSeconds": deadline}}}
    kubectl("patch", "ptj", "held", "--type=merge", "-p", json.dumps(patch))
    assert "Failed" in kubectl.finish("held")
    status = kubectl.job("held")["status"]
    start, end = (datetime.fromisoformat(status[key]) for key in ("startTime", "completionTime"))
    assert (end - start).total_seconds() >= deadline
    until(lambda: _names(kubectl) == ["held-worker-0", "held-worker-1"], 60, lambda: kubectl.story("held"))
    assert kubectl("logs", "held-worker-1") == "trained\n"


def test_a_job_whose_time_to_live_is_over_is_deleted_with_all_that_it_had(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=_job(DONE, DONE, ttlSecondsAfterFinished=0))
    until(lambda: not kubectl("get", "ptj", "-o", "name"), 90, lambda: kubectl.story("held"))
    until(lambda: not kubectl.children("held"), 60, lambda: str(kubectl.children("held")))
    ended = ("events", "--field-selector=involvedObject.name=held,reason=PyTorchJobSucceeded")
    until(lambda: len(kubectl.get(*ended)["items"]) == 1, 60)


def _phases(kubectl: Kubectl) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"].get("phase", "") for pod in kubectl.pods("held")}


def _names(kubectl: Kubectl) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in kubectl.pods("held"))
