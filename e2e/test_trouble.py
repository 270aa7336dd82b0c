"""What is wrong with real pods, in the words of a real kubelet and scheduler: shown while it lasts, told, counted."""

import json
from collections import Counter
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from e2e.kubectl import Kubectl, until

IMAGE = "pytorchjob/examples:dev"
MISSING = "pytorchjob/there-is-no-such-image:dev"
SLEEP = "import time; time.sleep(3600)"
GREEDY = "x = bytearray(400_000_000)"
LABELS = "app.kubernetes.io/name=pytorchjob-operator"


def job(program: str = SLEEP, image: str = IMAGE, policy: str = "OnFailure", **pod: Any) -> str:
    """A job of one worker."""
    container = {
        "name": "pytorch",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", program],
        "resources": {"limits": {"memory": "100Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        **pod,
    }
    worker = {"restartPolicy": policy, "template": {"spec": spec}}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "x"}}
    return json.dumps({**body, "spec": {"pytorchReplicaSpecs": {"Worker": worker}, "runPolicy": {"backoffLimit": 2}}})


def waits_for(kubectl: Kubectl) -> str | None:
    conditions = kubectl.job("x").get("status", {}).get("conditions", [])
    return next((condition["reason"] for condition in conditions if condition["type"] == "Waiting"), None)


def told(kubectl: Kubectl, reason: str) -> list[str]:
    """The messages of the job's events of this reason."""
    events = kubectl.get("events", "--field-selector=involvedObject.kind=PyTorchJob")["items"]
    return [event["message"] for event in events if event["reason"] == reason]


def pod_restarts(operator: Kubectl, namespace: str) -> Counter[str]:
    """By cause, over all replicas of the operator: one of them leads and counts."""
    found = Counter[str]()
    for pod in operator.get("pods", "-l", LABELS)["items"]:
        path = f"/api/v1/namespaces/{operator.namespace}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
        families = text_string_to_metric_families(operator("get", "--raw", path))
        for sample in (sample for family in families for sample in family.samples):
            if sample.name == "pytorchjob_operator_pod_restarts_total" and sample.labels["job_namespace"] == namespace:
                found[sample.labels["cause"]] += int(sample.value)
    return +found  # a namespace has every cause, most of them at 0


def test_an_image_that_is_not_there_is_shown_until_the_job_has_another(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=job(image=MISSING))
    until(lambda: waits_for(kubectl) == "ImagePullBackOff", 60, lambda: kubectl.story("x"))
    until(lambda: told(kubectl, "ImagePullBackOff"), 30)
    (message,) = told(kubectl, "ImagePullBackOff")
    assert message.startswith("Error pod x-worker-0 container pytorch waiting message: ")
    kubectl("patch", "ptj", "x", "--type=merge", "-p", json.dumps({"spec": {"runPolicy": {"suspend": True}}}))
    until(lambda: not kubectl.children("x"), 60, lambda: kubectl.story("x"))
    role = {"Worker": json.loads(job())["spec"]["pytorchReplicaSpecs"]["Worker"]}
    resumed = {"spec": {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": role}}
    kubectl("patch", "ptj", "x", "--type=merge", "-p", json.dumps(resumed))
    until(lambda: kubectl.conditions("x").get("Running") == "True", 60, lambda: kubectl.story("x"))
    assert waits_for(kubectl) is None


def test_a_job_that_no_node_takes_says_so_in_the_schedulers_words(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=job(nodeSelector={"there-is": "no-such-node"}))
    until(lambda: waits_for(kubectl) == "Unschedulable", 60, lambda: kubectl.story("x"))
    until(lambda: told(kubectl, "Unschedulable"), 30)
    assert "didn't match Pod's node affinity/selector" in told(kubectl, "Unschedulable")[0]


def without_limit(text: str, command: list[str] | None = None) -> str:
    """The job with v1's endless restarts, and another command."""
    body = json.loads(text)
    del body["spec"]["runPolicy"]
    if command:
        container = body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        container |= {"command": command, "resources": {"limits": {"memory": "1Gi"}}}
    return json.dumps(body)


def test_a_crash_loop_is_shown_with_the_last_line_of_the_script(kubectl: Kubectl) -> None:
    program = "import sys; print('loading', file=sys.stderr); raise SystemExit('no such data set')"
    kubectl("apply", "-f", "-", stdin=without_limit(job(program)))

    def shown() -> str:
        conditions = kubectl.job("x").get("status", {}).get("conditions", [])
        return next((condition["message"] for condition in conditions if condition["reason"] == "CrashLoop"), "")

    until(shown, 180, lambda: kubectl.story("x"))
    assert "exit code 1, no such data set" in shown()
    assert kubectl.conditions("x").get("Failed") is None


def test_a_wrong_command_line_of_the_agent_ends_the_job(kubectl: Kubectl) -> None:
    command = ["pytorchjob-agent", "run", "--", "--max-restarts=-1", "train.py"]
    kubectl("apply", "-f", "-", stdin=without_limit(job(), command))
    assert "Failed" in kubectl.finish("x", 240)
    failed = next(condition for condition in kubectl.job("x")["status"]["conditions"] if condition["type"] == "Failed")
    assert "BadUsage: --max-restarts=-1: expected 0 or more restarts" in failed["message"]


def test_pods_that_are_made_again_are_counted_by_the_cause_of_their_loss(operator: Kubectl, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=job(GREEDY, policy="ExitCode"))
    assert "Failed" in kubectl.finish("x", 90)
    assert pod_restarts(operator, kubectl.namespace) == {"OOMKilled": 1}
    until(lambda: told(kubectl, "ExitedWithCode"), 30)
    message = f"Pod: {kubectl.namespace}.x-worker-0 exited with code 137 (OOMKilled)"
    assert set(told(kubectl, "ExitedWithCode")) == {message}


def test_a_pod_that_is_drained_is_made_again_and_counted_as_evicted(operator: Kubectl, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=job())
    until(lambda: kubectl.conditions("x").get("Running") == "True", 90, lambda: kubectl.story("x"))
    (before,) = kubectl.pods("x")
    meta = {"name": before["metadata"]["name"], "namespace": kubectl.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{meta['name']}/eviction"
    kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    until(lambda: before["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in kubectl.pods("x")], 60)
    until(lambda: kubectl.conditions("x").get("Running") == "True", 90, lambda: kubectl.story("x"))
    assert pod_restarts(operator, kubectl.namespace) == {"Evicted": 1}
    until(lambda: told(kubectl, "EvictionByEvictionAPI"), 30)
