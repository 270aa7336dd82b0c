"""What a job's pods find: names that resolve, v1's short ones too, and an env that says what the plan says."""

import json
from collections.abc import Callable

import pytest

from e2e.kubectl import Kubectl, until
from pytorchjob_agent.contract.environment import ReplicaEnv

PROBE = """
import json, os, socket, time
names = ["probe-master-0.probe", "probe-worker-1.probe", "probe-master-0", "probe-worker-0", "probe-worker-1"]
found = {}
for name in names:
    for _ in range(60):
        try:
            found[name] = socket.gethostbyname(name)
            break
        except OSError:
            time.sleep(0.5)
print(json.dumps({"env": dict(os.environ), "found": found, "host": socket.gethostname()}))
time.sleep(3600)
"""


def _role(replicas: int) -> dict:
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "pytorch",
        "image": "pytorchjob/examples:dev",
        "command": ["python", "-u", "-c", PROBE],
        # A probe that never passes: a replica must be found before it is ready.
        "readinessProbe": {"exec": {"command": ["false"]}},
        "securityContext": security,
    }
    pod = {
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    return {"replicas": replicas, "template": {"spec": pod}}


def _probe() -> str:
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "probe"},
        "spec": {"pytorchReplicaSpecs": {"Master": _role(1), "Worker": _role(2)}},
    }
    return json.dumps(job)


def _report(kubectl: Kubectl, pod: str) -> dict:
    until(lambda: "found" in kubectl("logs", pod, check=False), 120, lambda: kubectl.story("probe"))
    report: dict = json.loads(kubectl("logs", pod))
    return report


def test_all_names_resolve_and_the_env_is_the_contract(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=_probe())
    pods = ["probe-master-0", "probe-worker-0", "probe-worker-1"]
    reports = [_report(kubectl, pod) for pod in pods]
    addresses = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in kubectl.pods("probe")}
    for rank, (pod, report) in enumerate(zip(pods, reports, strict=True)):
        assert report["host"] == pod
        assert report["found"] == {name: addresses[name.partition(".")[0]] for name in report["found"]}
        assert len(report["found"]) == 5
        env = ReplicaEnv.from_env(report["env"])
        assert (env.rank, env.world_size, env.master_addr) == (rank, 3, "probe-master-0.probe")


def test_scaling_the_workers_adds_and_removes_the_highest_index(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=_probe())
    until(lambda: len(kubectl.pods("probe")) == 3, 60)
    before = {pod["metadata"]["uid"] for pod in kubectl.pods("probe")}
    kubectl("scale", "pytorchjob", "probe", "--replicas=3")
    until(lambda: len(kubectl.pods("probe")) == 4, 60)
    kubectl("scale", "pytorchjob", "probe", "--replicas=2")
    until(lambda: {pod["metadata"]["uid"] for pod in kubectl.pods("probe")} == before, 60)


@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param("Service", "probe", id="of the Service"), pytest.param("Pod", "probe-worker-1", id="of a pod")],
)
def test_a_name_that_is_taken_is_left_alone_and_shown_until_it_is_free(kubectl: Kubectl, kind: str, name: str) -> None:
    ports = {"clusterIP": "None", "ports": [{"port": 80}]}
    waiting = {**_role(1)["template"]["spec"], "nodeSelector": {"there-is": "no-such-node"}}
    taken = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
    kubectl("apply", "-f", "-", stdin=json.dumps({**taken, "spec": ports if kind == "Service" else waiting}))
    before = kubectl.get(kind, name)["metadata"]["uid"]
    kubectl("apply", "-f", "-", stdin=_probe())
    until(lambda: f"'{name}' already exists and does not belong to this job" in _failure(kubectl), 60, _story(kubectl))
    assert kubectl.get(kind, name)["metadata"]["uid"] == before
    kubectl("delete", kind, name, "--grace-period=0", "--force")
    until(lambda: len(kubectl.children("probe")) == 4, 120, _story(kubectl))


def _failure(kubectl: Kubectl) -> str:
    """The message of the condition ReplicaFailure; empty while there is none."""
    conditions = kubectl.job("probe").get("status", {}).get("conditions", [])
    return next((condition["message"] for condition in conditions if condition["type"] == "ReplicaFailure"), "")


def _story(kubectl: Kubectl) -> Callable[[], str]:
    return lambda: kubectl.story("probe")
