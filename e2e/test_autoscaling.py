"""An autoscaler with a real metric: CPU that the workers use brings a third, rest takes it away, and steps go on."""

import itertools
import json
import os
import re
from pathlib import Path

import pytest

from e2e.kubectl import Kubectl, until

SCRIPT = (Path(__file__).parent / "autoscaled.py").read_text()
STEP = re.compile(r"step=(\d+) members=(\d+)")
ON_KIND = os.environ.get("PROVIDER") != "existing"
PATIENCE = 180 if ON_KIND else 540  # seconds; a cluster's own autoscaler waits five minutes before it takes a pod away


def _job() -> str:
    container = {
        "name": "pytorch",
        "image": "pytorchjob/examples:dev",
        "command": ["pytorchjob-agent", "run", "--no-python", "--", "python", "-c", SCRIPT],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": {"requests": {"cpu": "250m"}},
        # An autoscaler does not look at a pod before it has started: importing torch is no load.
        "startupProbe": {"exec": {"command": ["test", "-e", "/tmp/step"]}, "periodSeconds": 2, "failureThreshold": 300},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    elastic = {
        "minReplicas": 2,
        "maxReplicas": 3,
        "maxRestarts": 20,
        "metrics": [{"type": "Resource", "resource": cpu}],
        # torch's defaults are half a minute to wait for more members, and 15 s to miss one.
        "rdzvConf": [{"key": "last_call_timeout", "value": "2"}, {"key": "keep_alive_interval", "value": "3"}],
    }
    workers = {"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": pod}}
    spec = {"nprocPerNode": "1", "elasticPolicy": elastic, "pytorchReplicaSpecs": {"Worker": workers}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "scaled"}, "spec": spec}
    return json.dumps(job)


def _steps(kubectl: Kubectl) -> list[tuple[int, int]]:
    """What worker 0 saw, which stays throughout: each step, and with how many members."""
    log = kubectl("logs", "pod/scaled-worker-0", check=False)
    return [(int(step), int(members)) for step, members in STEP.findall(log)]


def _sizes(kubectl: Kubectl) -> list[int]:
    return [members for members, _ in itertools.groupby(members for _, members in _steps(kubectl))]


def _trains_with(kubectl: Kubectl, size: int, after: int = 0) -> int:
    """Wait for five steps with this many members, all after the given one; return the number of the last step.

    On a busy machine the workers get less CPU, and the autoscaler may take the third away and bring it back.
    """

    def taken() -> list[int]:
        return [step for step, members in _steps(kubectl) if step > after and members == size]

    until(lambda: len(taken()) >= 5, PATIENCE, lambda: f"members {_sizes(kubectl)}\n{_story(kubectl)}")
    return _steps(kubectl)[-1][0]


def _story(kubectl: Kubectl) -> str:
    return kubectl("describe", "hpa", check=False) + kubectl.story("scaled")


def _replicas(kubectl: Kubectl) -> int:
    """Asks for what the autoscaler has set."""
    workers: dict[str, int] = kubectl.job("scaled")["spec"]["pytorchReplicaSpecs"]["Worker"]
    return workers["replicas"]


def _tell(kubectl: Kubectl, what: str) -> None:
    kubectl("exec", "scaled-worker-0", "--", "touch", f"/tmp/{what}")


@pytest.fixture
def metered(kubectl: Kubectl) -> Kubectl:
    """A cluster that serves what pods use."""
    if not kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes", check=False):
        refuse = pytest.fail if ON_KIND else pytest.skip
        refuse("the cluster does not serve metrics.k8s.io: run `make cluster`, or install metrics-server in your own")
    return kubectl


def test_cpu_brings_a_third_worker_and_rest_takes_it_away_while_training_goes_on(metered: Kubectl) -> None:
    metered("apply", "-f", "-", stdin=_job())
    busy = _trains_with(metered, 3)
    assert _sizes(metered)[:2] == [2, 3]
    assert "PyTorchJob/scaled" in metered("get", "hpa", "scaled")

    _tell(metered, "rest")
    _trains_with(metered, 2, after=busy)
    until(lambda: _replicas(metered) == 2, PATIENCE, lambda: _story(metered))
    steps = [step for step, _ in _steps(metered)]
    assert steps == sorted(set(steps)), "the count of steps went back"

    _tell(metered, "end")
    assert "Succeeded" in metered.finish("scaled"), _story(metered)
    until(lambda: not metered("get", "hpa", "-o", "name"), 60, lambda: metered("describe", "hpa"))


def test_the_autoscaler_follows_the_job_and_keeps_what_a_user_has_set_in_it(kubectl: Kubectl) -> None:
    job = json.loads(_job())
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["nodeSelector"] = {"there-is": "no-such-node"}
    kubectl("apply", "-f", "-", stdin=json.dumps(job))
    until(lambda: kubectl("get", "hpa", "-o", "name"), 60, lambda: kubectl.story("scaled"))
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 7}}
    kubectl("patch", "hpa", "scaled", "--type=merge", "-p", json.dumps({"spec": {"behavior": behavior}}))
    higher = {"spec": {"elasticPolicy": {"maxReplicas": 4}}}
    kubectl("patch", "ptj", "scaled", "--type=merge", "-p", json.dumps(higher))
    until(lambda: kubectl.get("hpa", "scaled")["spec"]["maxReplicas"] == 4, 60, lambda: kubectl.story("scaled"))
    assert kubectl.get("hpa", "scaled")["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 7
