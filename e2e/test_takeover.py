"""A job that training-operator v1 started trains on while this operator takes it over, pod by pod the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e import as_v1
from e2e.conftest import RELEASE
from e2e.kubectl import Kubectl, until

pytestmark = pytest.mark.alone  # the operator is stopped
TRIO = ["x-master-0", "x-worker-0", "x-worker-1"]
TRAIN = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
end = time.monotonic() + 300
done = torch.zeros(1)
for step in range(3000):
    done.fill_(os.path.exists("/tmp/enough") or time.monotonic() > end)
    dist.all_reduce(done)
    print(f"step={step} world_size={dist.get_world_size()}", flush=True)
    if done:
        break
    time.sleep(0.2)
dist.destroy_process_group()
"""
TEMPLATE: dict[str, Any] = {
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "pytorch",
                "image": "pytorchjob/examples:dev",
                "imagePullPolicy": "IfNotPresent",
                "command": ["python", "-c", TRAIN],
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    }
}


@contextmanager
def stopped(operator: Kubectl) -> Iterator[None]:
    """Without any operator."""
    operator("scale", f"deployment/{RELEASE}", "--replicas=0")
    try:
        until(lambda: not operator.get("pods", "-l", "app.kubernetes.io/name=pytorchjob-operator")["items"], 120)
        yield
    finally:
        operator("scale", f"deployment/{RELEASE}", "--replicas=2")
        operator("rollout", "status", f"deployment/{RELEASE}", "--timeout=180s")


def pods(kubectl: Kubectl) -> dict[str, tuple[str, int]]:
    """uid and restarts of each pod by its name."""
    return {pod["metadata"]["name"]: (pod["metadata"]["uid"], restarts(pod)) for pod in kubectl.pods("x")}


def restarts(pod: dict[str, Any]) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", ()))


def steps(kubectl: Kubectl, pod: str) -> int:
    """How many steps the process that runs now has done."""
    return kubectl("logs", pod, "--container=pytorch", check=False).count("world_size=3")


def left_by_v1(kubectl: Kubectl, operator: Kubectl) -> dict[str, tuple[str, int]]:
    """A job that trains, made while no operator was there, and taken over by this one; returns its pods from before."""
    with stopped(operator):
        as_v1.leave(kubectl, "x", 2, TEMPLATE)
        until(lambda: steps(kubectl, "x-worker-1"), 120, lambda: kubectl.story("x"))
        before = pods(kubectl)
    until(lambda: kubectl.job("x")["status"].get("observedGeneration"), 60, lambda: kubectl.story("x"))
    return before


def succeed(kubectl: Kubectl) -> None:
    """Tell the master that it is enough, and wait for the end."""
    kubectl("exec", "x-master-0", "--", "touch", "/tmp/enough")
    assert kubectl.finish("x") == {"Created": "True", "Running": "False", "Succeeded": "True"}, kubectl.story("x")


def test_a_running_job_trains_on_untouched(kubectl: Kubectl, operator: Kubectl) -> None:
    before = left_by_v1(kubectl, operator)
    done = steps(kubectl, "x-worker-1")
    until(lambda: steps(kubectl, "x-worker-1") > done + 10, 60, lambda: kubectl.story("x"))
    succeed(kubectl)
    assert pods(kubectl) == before
    assert {restarted for _, restarted in before.values()} == {0}
    services = {name for name in kubectl.children("x") if name.startswith("service/")}
    assert services == {f"service/{name}" for name in ["x", *TRIO]}


def test_a_pod_that_is_made_again_trains_with_those_of_v1(kubectl: Kubectl, operator: Kubectl) -> None:
    before = left_by_v1(kubectl, operator)
    kubectl("delete", "pod", "x-worker-0")
    until(lambda: pods(kubectl).get("x-worker-0", before["x-worker-0"]) != before["x-worker-0"], 60)
    until(lambda: steps(kubectl, "x-worker-0"), 180, lambda: kubectl.story("x"))
    succeed(kubectl)
    after = pods(kubectl)
    assert [name for name in TRIO if after[name][0] != before[name][0]] == ["x-worker-0"]
