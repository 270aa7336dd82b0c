"""The PyPI package kubeflow-training, which knows nothing of this project, takes jobs through their whole life here."""

import json
import subprocess

import pytest

from e2e.conftest import ROOT
from e2e.kubectl import Kubectl, until

PYTHON = ROOT / "out" / "kubeflow-training" / "bin" / "python"
CLIENT = ROOT / "e2e" / "sdk" / "client.py"
PODS = ["sdk-master-0", "sdk-worker-0", "sdk-worker-1"]
DONE = {"Created": "True", "Running": "False", "Succeeded": "True"}

Facts = dict[str, dict]


@pytest.fixture
def unrestricted(kubectl: Kubectl) -> Kubectl:
    """A namespace that does not enforce Pod Security: the client's template has no securityContext and takes none."""
    kubectl("label", "namespace", kubectl.namespace, "pod-security.kubernetes.io/enforce-")
    return kubectl


def client(case: str, kubectl: Kubectl) -> Facts:
    """What the client saw, by the step at which it saw it."""
    assert PYTHON.exists(), 'the client is missing: run `make e2e`, or leave these tests out with WITHOUT="cluster"'
    command = [str(PYTHON), str(CLIENT), case, str(kubectl.kubeconfig), kubectl.namespace]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr + kubectl.story("sdk")
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    return {fact.pop("step"): fact for fact in facts}


def test_a_job_from_an_object_is_created_suspended_and_resumed_by_an_update(kubectl: Kubectl) -> None:
    facts = client("object", kubectl)
    assert facts["suspended"] == {"conditions": {"Created": "True", "Suspended": "True"}, "pods": []}
    judge(facts, {"Suspended": "False"})
    until(lambda: not kubectl.children("sdk"), 60, lambda: str(kubectl.children("sdk")))


def test_a_job_from_a_function_trains_without_a_line_of_yaml(unrestricted: Kubectl) -> None:
    judge(client("function", unrestricted), {})
    until(lambda: not unrestricted.children("sdk"), 60, lambda: str(unrestricted.children("sdk")))


def judge(facts: Facts, past: dict[str, str]) -> None:
    """What holds for every job of the client's: past are the conditions that an earlier suspension leaves."""
    assert facts["running"]["conditions"] == {"Created": "True", "Running": "True", **past}
    assert "rank=0 world=3 sum=6" in facts["running"]["followed"]["sdk-master-0"]
    assert facts["ended"]["conditions"] == {**DONE, **past}
    assert facts["ended"]["succeeded"]
    told(facts["ended"]["logs"], facts["ended"]["events"])
    assert facts["looked"] == {
        "jobs": ["sdk"],
        "labels": {"updated": "yes"},
        "pods": PODS,
        "masters": PODS[:1],
        "second_workers": PODS[2:],
    }
    assert facts["deleted"]["jobs"] == []


def told(logs: dict[str, str], events: dict[str, list[str]]) -> None:
    """The result of each rank is in the log of its pod, and the job's and the pods' events tell what happened."""
    assert sorted(logs) == PODS
    for rank, pod in enumerate(PODS):
        assert f"rank={rank} world=3 sum=6" in logs[pod]
    assert events.keys() == {"pytorchjob/sdk", *(f"pod/{pod}" for pod in PODS)}
    assert any("is successfully completed" in line for line in events["pytorchjob/sdk"])
