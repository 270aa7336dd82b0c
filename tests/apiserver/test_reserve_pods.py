"""Reserve pods before a real API server and a real scheduler, on simulated nodes."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.cluster import ControlPlane
from tests.apiserver.conftest import CRD, install
from tests.apiserver.operator_process import Audit, Jobs, OperatorProcess
from tests.apiserver.simulated import start_nodes
from tests.factories import make_template
from tests.waiting import until

pytestmark = [pytest.mark.apiserver]

LOST, RESERVE = "x-worker-1", "x-worker-1-reserve"
HALF = {"requests": {"cpu": "600"}, "limits": {"cpu": "600"}}
"""Two pods of this size do not fit a simulated node together."""
CONTAINER = {
    "name": "pytorch",
    "image": "train:1",
    "resources": HALF,
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
SECURITY = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
Object = dict[str, Any]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with our operator, kube-scheduler and four nodes: two more than the job has pods."""
    directory = tmp_path_factory.mktemp("reserves")
    with ControlPlane(directory) as made:
        install(made, CRD)
        start_nodes(made, count=4)
        process = OperatorProcess(made, directory).wait_ready()
        yield made
        assert process.stop() == 0


@pytest.fixture
def jobs(plane: ControlPlane) -> Iterator[Jobs]:
    """A namespace that enforces the strictest standard; its job is gone, and all nodes are open, after the test."""
    made = Jobs(plane, f"test-{secrets.token_hex(4)}")
    made.kubectl("create", "namespace", made.namespace)
    made.kubectl("label", "namespace", made.namespace, "pod-security.kubernetes.io/enforce=restricted")
    yield made
    made.kubectl("delete", "ptj", "--all")
    until(lambda: made.count("pods") == 0)
    for node in plane.get("nodes")["items"]:
        plane.kubectl("uncordon", node["metadata"]["name"])


def started(jobs: Jobs, **spec: Any) -> None:
    """A job of two workers that run, each on its own node."""
    template = make_template(containers=[CONTAINER], securityContext=SECURITY)
    worker = {"replicas": 2, "restartPolicy": "OnFailure", "template": template}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "x", "namespace": jobs.namespace},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}, "agent": {"reservePods": 1}, **spec},
    }
    done = jobs.plane.apply(body)
    assert done.returncode == 0, done.stderr
    until(lambda: len(running(jobs)) == 2 and jobs.condition("x", "Running"))


def running(jobs: Jobs) -> dict[str, str]:
    """The nodes of the pods that run, by the pods' names."""
    items = jobs.plane.read(f"/api/v1/namespaces/{jobs.namespace}/pods")["items"]
    living = (pod for pod in items if pod["status"].get("phase") == "Running" and not _deleting(pod))
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in living}


def _deleting(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def messages(jobs: Jobs, reason: str) -> list[str]:
    return [event["message"] for event in jobs.events() if event["reason"] == reason]


def test_a_drained_pod_starts_again_on_the_node_of_its_reserve(jobs: Jobs) -> None:
    started(jobs)
    audit = Audit(jobs.plane)
    old = running(jobs)[LOST]
    jobs.plane.kubectl("cordon", old)
    until(lambda: RESERVE in running(jobs))
    before = running(jobs)
    assert before[RESERVE] not in {before["x-worker-0"], old}
    assert before[LOST] == old
    drained = jobs.plane.kubectl("drain", old, "--ignore-daemonsets", "--timeout=60s")
    assert drained.returncode == 0, drained.stderr
    until(lambda: set(running(jobs)) == {"x-worker-0", LOST})
    assert running(jobs) == {"x-worker-0": before["x-worker-0"], LOST: before[RESERVE]}
    until(lambda: any("starts in its place" in message for message in messages(jobs, "SuccessfulDeletePod")))
    [created] = messages(jobs, "ReservePodCreated")
    assert created.endswith(f"as {LOST} may be lost: its node {old} is cordoned")
    asked = audit.counts(jobs.namespace)
    assert (asked["create", "pods"], asked["delete", "pods"]) == (2, 1)
    assert jobs.condition("x", "ReplicaFailure") is None


def test_a_reserve_goes_when_its_node_is_open_again(jobs: Jobs) -> None:
    started(jobs)
    old = running(jobs)[LOST]
    jobs.plane.kubectl("cordon", old)
    until(lambda: RESERVE in running(jobs))
    jobs.plane.kubectl("uncordon", old)
    until(lambda: RESERVE not in running(jobs))
    assert running(jobs)[LOST] == old


def test_a_reserve_goes_when_the_job_is_suspended(jobs: Jobs) -> None:
    started(jobs)
    jobs.plane.kubectl("cordon", running(jobs)[LOST])
    until(lambda: RESERVE in running(jobs))
    jobs.patch("x", {"spec": {"runPolicy": {"suspend": True}}})
    until(lambda: jobs.count("pods") == 0)


def test_a_reserve_that_a_quota_refuses_is_an_event_and_no_condition(jobs: Jobs) -> None:
    started(jobs)
    jobs.kubectl("create", "quota", "few", "--hard=pods=2")
    # The quota controller, which would write the status, does not run here.
    status = '{"status": {"hard": {"pods": "2"}, "used": {"pods": "2"}}}'
    jobs.kubectl("patch", "quota", "few", "--subresource=status", "--type=merge", "-p", status)
    jobs.plane.kubectl("cordon", running(jobs)[LOST])
    until(lambda: messages(jobs, "ReservePodRefused"))
    assert "exceeded quota: few" in messages(jobs, "ReservePodRefused")[0]
    assert jobs.condition("x", "ReplicaFailure") is None
    assert jobs.count("pods") == 2
