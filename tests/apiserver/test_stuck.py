"""Pods that are bound to nodes without a kubelet, so that none of them ever ends by itself: which of them are freed."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import Audit, Jobs, Kubelet
from tests.factories import make_template
from tests.waiting import becomes, until_async

pytestmark = [pytest.mark.apiserver]

OPERATOR_ENV = {"PYTORCHJOB_STUCK_POD_SECONDS": "1"}
LOST = "x-worker-0"
LONG_AGO, SOON = "2026-01-01T00:00:00Z", "2126-01-01T00:00:00Z"
TAINT = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
Node = Callable[..., str]


@pytest.fixture
def node(control_plane: ControlPlane, jobs: Jobs) -> Iterator[Node]:
    """Make a node of this test's own, or bring its readiness up to date; gives its name."""

    def make(ready: str, since: str = LONG_AGO, *taints: dict[str, str]) -> str:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": jobs.namespace}, "spec": {"taints": taints}}
        assert control_plane.apply(body).returncode == 0
        told = {"type": "Ready", "status": ready, "reason": "Test", "lastTransitionTime": since}
        patch = json.dumps({"status": {"conditions": [told]}})
        done = control_plane.kubectl("patch", "node", jobs.namespace, "--subresource=status", "--patch", patch)
        assert done.returncode == 0, done.stderr
        return jobs.namespace

    yield make
    control_plane.kubectl("delete", "node", jobs.namespace, "--ignore-not-found")


async def lost(jobs: Jobs, kubelet: Kubelet, restart: str = "OnFailure", **template: Any) -> str:
    """A job that ran on a node of the namespace's name, and whose worker is told to go; the worker's uid."""
    on_node = make_template(nodeName=jobs.namespace, terminationGracePeriodSeconds=1)
    jobs.apply("x", 1, restartPolicy=restart, template={**on_node, **template})
    await until_async(lambda: pod_uid(kubelet, "x-master-0"))
    uid = str(await until_async(lambda: pod_uid(kubelet, LOST)))
    await kubelet.report("Running")
    await becomes(lambda: jobs.condition("x", "Running"))
    jobs.kubectl("delete", "pod", LOST, "--wait=false")
    return uid


async def pod_uid(kubelet: Kubelet, name: str) -> str | None:
    pod = (await kubelet.pods()).get(name)
    return pod and str(pod["metadata"]["uid"])


async def gone(kubelet: Kubelet, uid: str) -> bool:
    return await pod_uid(kubelet, LOST) != uid


def forced(jobs: Jobs) -> list[dict[str, Any]]:
    return [event for event in jobs.events() if event["reason"] == "ForceDeletedPod"]


@pytest.mark.parametrize(
    ("state", "told"),
    [
        pytest.param(None, "is gone", id="its node is gone"),
        pytest.param(("Unknown",), "has not been ready for", id="its node sent nothing for long"),
        pytest.param(("Unknown", SOON, TAINT), "is out of service", id="its node is out of service"),
    ],
)
async def test_a_pod_is_made_again_when(
    jobs: Jobs, kubelet: Kubelet, node: Node, state: tuple[Any, ...] | None, told: str
) -> None:
    if state is not None:
        node(*state)
    uid = await lost(jobs, kubelet)
    await until_async(lambda: gone(kubelet, uid))
    await until_async(lambda: pod_uid(kubelet, LOST))
    await kubelet.report("Running", LOST)
    await becomes(lambda: jobs.condition("x", "Running"))
    await becomes(lambda: forced(jobs))
    (event,) = forced(jobs)
    assert (event["type"], event.get("count", 1)) == ("Warning", 1)
    assert f"Force-deleted pod: {LOST}: its grace period ended" in event["message"]
    assert f"node {jobs.namespace} {told}" in event["message"]


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(("True",), id="its node is well"),
        pytest.param(("True", LONG_AGO, TAINT), id="its node is back, and only the taint is left"),
        pytest.param(("Unknown", SOON), id="its node was heard of a moment ago"),
    ],
)
async def test_a_pod_is_left_to_its_kubelet_when(
    control_plane: ControlPlane, jobs: Jobs, kubelet: Kubelet, node: Node, state: tuple[Any, ...]
) -> None:
    node(*state)
    audit = Audit(control_plane)
    uid = await lost(jobs, kubelet)
    await becomes(lambda: ("get", "nodes", jobs.namespace) in asked(audit))
    await becomes(lambda: jobs.condition("x", "Restarting"))
    assert not await gone(kubelet, uid)


def asked(audit: Audit) -> list[tuple[str, str, str]]:
    return [(request.verb, request.resource, request.name) for request in audit.operator()]


async def test_a_job_of_restart_policy_never_fails_and_its_pod_goes(jobs: Jobs, kubelet: Kubelet) -> None:
    uid = await lost(jobs, kubelet, restart="Never")
    await becomes(lambda: jobs.condition("x", "Failed"))
    await until_async(lambda: gone(kubelet, uid))
    assert await pod_uid(kubelet, LOST) is None
    await becomes(lambda: forced(jobs))


async def test_a_suspended_job_gets_rid_of_its_pods(jobs: Jobs, kubelet: Kubelet) -> None:
    await lost(jobs, kubelet)
    jobs.patch("x", {"spec": {"runPolicy": {"suspend": True}}})
    await becomes(lambda: jobs.count("pods", "services") == 0)
    assert jobs.conditions("x")[-1] == ("Suspended", "True")


async def test_a_worker_that_the_job_no_longer_wants_goes(jobs: Jobs, kubelet: Kubelet) -> None:
    jobs.apply("x", 2, template=make_template(nodeName=jobs.namespace, terminationGracePeriodSeconds=1))
    await until_async(lambda: pod_uid(kubelet, "x-worker-1"))
    await kubelet.report("Running")
    await becomes(lambda: jobs.condition("x", "Running"))
    jobs.kubectl("scale", "ptj", "x", "--replicas=1")
    await becomes(lambda: jobs.count("pods") == 2)


async def test_a_pod_that_a_finalizer_holds_is_deleted_by_force_once(
    control_plane: ControlPlane, jobs: Jobs, kubelet: Kubelet
) -> None:
    audit = Audit(control_plane)
    uid = await lost(jobs, kubelet, metadata={"finalizers": ["example.com/keep"]})
    await becomes(lambda: forced(jobs))
    assert not await gone(kubelet, uid)
    jobs.kubectl("annotate", "pod", LOST, "a=b")
    jobs.kubectl("patch", "pod", LOST, "--type=merge", "-p", json.dumps({"metadata": {"finalizers": None}}))
    await until_async(lambda: gone(kubelet, uid))
    assert audit.counts(jobs.namespace)["delete", "pods"] == 1
    jobs.kubectl("patch", "pod", "x-master-0", "--type=merge", "-p", json.dumps({"metadata": {"finalizers": None}}))
