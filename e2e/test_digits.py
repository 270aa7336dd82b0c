"""The main job: from `kubectl apply` to Succeeded on several nodes, as a person sees it, and nothing left behind."""

import re
import subprocess
import tempfile

import pytest

from e2e.conftest import RELEASE, ROOT
from e2e.kubectl import Kubectl, until

# The operator is stopped here, and other jobs would move pods to nodes that are shared.
pytestmark = pytest.mark.alone
YAML = ROOT / "examples" / "digits" / "pytorchjob.yaml"


@pytest.fixture
def watched(kubectl: Kubectl) -> str:
    """What `kubectl get ptj -w` printed over the whole life of the job."""
    with tempfile.TemporaryFile("w+") as out:
        watch = subprocess.Popen(kubectl.command("get", "ptj", "-w"), stdout=out, stderr=out)
        try:
            kubectl("apply", "-f", str(YAML))
            kubectl.finish("digits")
            until(lambda: "Succeeded" in _text(out), 20, lambda: _text(out))
        finally:
            watch.terminate()
            watch.wait()
        return _text(out)


def _text(file) -> str:
    file.seek(0)
    return file.read()


def test_digits_trains_on_several_nodes_to_success(kubectl: Kubectl, watched: str) -> None:
    assert kubectl.conditions("digits") == {"Created": "True", "Running": "False", "Succeeded": "True"}
    pods = kubectl.pods("digits")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == len(pods) == 3

    log = kubectl("logs", "digits-master-0")
    accuracy = re.search(r"accuracy=(\d\.\d+)", log)
    assert accuracy is not None, log
    assert float(accuracy[1]) > 0.95

    states = [line.split()[1] for line in watched.splitlines() if line.startswith("digits")]
    seen = list(dict.fromkeys(state for state in states if state in ("Created", "Running", "Succeeded")))
    assert seen == ["Created", "Running", "Succeeded"], watched

    described = kubectl("describe", "ptj", "digits")
    assert "SuccessfulCreatePod" in described
    assert "PyTorchJobSucceeded" in described

    meta = kubectl.job("digits")["metadata"]
    assert "finalizers" not in meta
    assert list(meta["annotations"]) == ["kubectl.kubernetes.io/last-applied-configuration"]

    kubectl("delete", "ptj", "digits")
    until(lambda: not kubectl.children("digits"), 60, lambda: str(kubectl.children("digits")))


def test_deletion_leaves_nothing_with_the_operator_stopped(kubectl: Kubectl, operator: Kubectl) -> None:
    kubectl("apply", "-f", str(YAML))
    until(lambda: len(kubectl.pods("digits")) == 3, 60, lambda: kubectl.story("digits"))
    operator("scale", f"deployment/{RELEASE}", "--replicas=0")
    try:
        until(lambda: not operator.get("pods", "-l", "app.kubernetes.io/name=pytorchjob-operator")["items"], 120)
        kubectl("delete", "ptj", "digits", "--timeout=30s")
        until(lambda: not kubectl.children("digits"), 90, lambda: str(kubectl.children("digits")))
    finally:
        operator("scale", f"deployment/{RELEASE}", "--replicas=2")
        operator("rollout", "status", f"deployment/{RELEASE}", "--timeout=180s")


def test_training_goes_on_while_the_operator_is_replaced(kubectl: Kubectl, operator: Kubectl) -> None:
    kubectl("apply", "-f", str(YAML))
    until(lambda: "Running" in kubectl.conditions("digits"), 120, lambda: kubectl.story("digits"))
    before = {pod["metadata"]["uid"] for pod in kubectl.pods("digits")}
    operator("delete", "pods", "--all", "--force", "--grace-period=0")
    assert kubectl.finish("digits") == {"Created": "True", "Running": "False", "Succeeded": "True"}
    assert {pod["metadata"]["uid"] for pod in kubectl.pods("digits")} == before
