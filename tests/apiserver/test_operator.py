"""The running operator and a real API server: the life of a job, and exactly what it costs."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import USER_AGENT, Audit, Jobs, Kubelet, OperatorProcess
from tests.waiting import becomes, until_async

pytestmark = [pytest.mark.apiserver]

CREATED = ("Created", "True")
RUNNING = ("Running", "True")
QUIET_SECONDS = 3.0
TOGETHER_SECONDS = 1.0
"""Changes of pods within this time share one status write: the operator waits for twice as long."""


async def started(jobs: Jobs, kubelet: Kubelet, name: str, workers: int, **role: Any) -> int:
    """A job all of whose pods run, and whose status says so; returns how many more writes a slow report may cost."""
    jobs.apply(name, workers, **role)
    await until_async(lambda: pods_are(kubelet, workers + 1))
    more = await slow(kubelet.report("Running"))
    await becomes(lambda: RUNNING in jobs.conditions(name))
    return more


async def one_after_the_other(kubelet: Kubelet) -> None:
    """A worker ends, and at once the others do."""
    await kubelet.report("Succeeded", "x-worker-0")
    await kubelet.report("Succeeded", "x-master-0", "x-worker-1")


async def slow(reports: Awaitable[object]) -> int:
    """Return 1 if the pods were not reported in one go: the operator may write its status earlier."""
    clock = asyncio.get_running_loop().time
    began = clock()
    await reports
    return int(clock() - began >= TOGETHER_SECONDS)


async def pods_are(kubelet: Kubelet, count: int) -> bool:
    return len(await kubelet.pods()) == count


async def settled(audit: Audit, jobs: Jobs) -> int:
    """How much the operator asked in this namespace by the time it falls silent."""
    count = -1
    while count != len(audit.operator(jobs.namespace)):
        count = len(audit.operator(jobs.namespace))
        await asyncio.sleep(QUIET_SECONDS)
    return count


async def test_a_life_to_succeeded_costs_its_pods_one_service_and_three_status_writes(
    control_plane: ControlPlane, jobs: Jobs, kubelet: Kubelet
) -> None:
    audit = Audit(control_plane)
    more = await started(jobs, kubelet, "x", 2)
    more += await slow(one_after_the_other(kubelet))
    await becomes(lambda: jobs.condition("x", "Succeeded"))
    await becomes(
        lambda: {event["reason"] for event in jobs.events()} == {"SuccessfulCreatePod", "PyTorchJobSucceeded"}
    )
    await settled(audit, jobs)
    assert jobs.conditions("x") == [CREATED, ("Running", "False"), ("Succeeded", "True")]
    assert audit.counts(jobs.namespace) in [
        {("create", "pods"): 3, ("create", "services"): 1, ("patch", "pytorchjobs/status"): writes}
        for writes in range(3, 4 + more)
    ]
    meta = jobs.get("x")["metadata"]
    assert "finalizers" not in meta
    assert set(meta.get("annotations", {})) <= {"kubectl.kubernetes.io/last-applied-configuration"}


async def test_a_converged_job_costs_nothing(control_plane: ControlPlane, jobs: Jobs, kubelet: Kubelet) -> None:
    audit = Audit(control_plane)
    await started(jobs, kubelet, "x", 1)
    await settled(audit, jobs)
    audit = Audit(control_plane)
    await asyncio.sleep(QUIET_SECONDS)
    assert audit.operator(jobs.namespace) == []


async def test_the_operator_reads_only_lists_and_watches(control_plane: ControlPlane, tmp_path: Path) -> None:
    audit = Audit(control_plane)
    other = OperatorProcess(control_plane, tmp_path, "--no-leader-elect", "-n", "nowhere")
    other.wait_ready()
    await asyncio.sleep(1)
    assert other.stop() == 0
    asked = audit.operator("nowhere")
    assert {request.verb for request in asked} == {"list", "watch"}
    assert {request.resource for request in asked} == {"pods", "services", "pytorchjobs"}


async def test_every_request_says_who_asks(control_plane: ControlPlane, jobs: Jobs, kubelet: Kubelet) -> None:
    audit = Audit(control_plane)
    await started(jobs, kubelet, "x", 1)
    known = (USER_AGENT, "kubectl", "test/", "kube-controller-manager", "kube-apiserver", "curl", "Python-urllib")
    assert {request.user_agent for request in audit.all() if not request.user_agent.startswith(known)} == set()


@pytest.mark.parametrize(
    "name",
    [
        "build_info",
        "leader",
        "jobs",
        "pods",
        "workqueue_depth",
        "events_dropped",
        "watch_last_contact_age_seconds",
        "reconcile_total",
        "reconcile_duration_seconds_bucket",
        "api_requests_total",
        "api_request_duration_seconds_bucket",
    ],
)
def test_metrics_have_their_names(operator: OperatorProcess, name: str) -> None:
    assert f"\npytorchjob_operator_{name}" in operator.http("/metrics")[1]


async def test_deleting_a_job_leaves_nothing(jobs: Jobs, kubelet: Kubelet) -> None:
    await started(jobs, kubelet, "x", 2)
    jobs.kubectl("delete", "ptj", "x")
    await becomes(lambda: jobs.count("pods", "services", "ptj") == 0)


async def test_scaling_with_kubectl_adds_and_removes_the_highest_workers(jobs: Jobs, kubelet: Kubelet) -> None:
    await started(jobs, kubelet, "x", 1)
    jobs.kubectl("scale", "ptj", "x", "--replicas=3")
    await until_async(lambda: pods_are(kubelet, 4))
    jobs.kubectl("scale", "ptj", "x", "--replicas=1")
    await until_async(lambda: pods_are(kubelet, 2))
    assert set(await kubelet.pods()) == {"x-master-0", "x-worker-0"}


async def test_a_failed_pod_is_made_again_under_on_failure(jobs: Jobs, kubelet: Kubelet) -> None:
    await started(jobs, kubelet, "x", 1, restartPolicy="OnFailure")
    before = (await kubelet.pods())["x-master-0"]["metadata"]["uid"]
    await kubelet.report("Failed", "x-master-0", exit_code=1)

    async def replaced() -> bool:
        pod = (await kubelet.pods()).get("x-master-0")
        return pod is not None and pod["metadata"]["uid"] != before

    await until_async(replaced)
    await becomes(lambda: jobs.conditions("x") == [CREATED, ("Restarting", "True")])
    await kubelet.report("Running")
    await becomes(lambda: jobs.conditions("x") == [CREATED, RUNNING])


async def test_a_failed_pod_ends_the_job_under_never(jobs: Jobs, kubelet: Kubelet) -> None:
    await started(jobs, kubelet, "x", 1, restartPolicy="Never")
    await kubelet.report("Failed", "x-worker-0", exit_code=1)
    await becomes(lambda: jobs.condition("x", "Failed"))
    assert jobs.conditions("x") == [CREATED, ("Running", "False"), ("Failed", "True")]
    await becomes(lambda: "PyTorchJobFailed" in {event["reason"] for event in jobs.events()})
    assert jobs.count("pods") == 2


async def test_a_quota_is_told_in_the_servers_words_and_obeyed_until_it_is_raised(jobs: Jobs, kubelet: Kubelet) -> None:
    quota(jobs, pods=2, used=0)
    jobs.apply("x", 3)
    await becomes(lambda: jobs.condition("x", "ReplicaFailure"))
    shown = jobs.condition("x", "ReplicaFailure") or {}
    words = "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2"
    assert (shown["reason"], words in shown["message"]) == ("FailedCreatePod", True)
    await becomes(lambda: any(words in event["message"] for event in jobs.events()))
    assert len(await kubelet.pods()) == 2
    quota(jobs, pods=9, used=2)
    await until_async(lambda: pods_are(kubelet, 4))
    await becomes(lambda: not jobs.condition("x", "ReplicaFailure"))


def quota(jobs: Jobs, pods: int, used: int) -> None:
    """A ResourceQuota as its controller, which does not run here, would keep it."""
    spec = {"hard": {"pods": str(pods)}}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": jobs.namespace}}
    done = jobs.plane.apply({**body, "spec": spec})
    assert done.returncode == 0, done.stderr
    patch = f'{{"status": {{"hard": {{"pods": "{pods}"}}, "used": {{"pods": "{used}"}}}}}}'
    jobs.kubectl("patch", "resourcequota", "few", "--subresource=status", "--type=merge", "-p", patch)


async def test_pod_security_is_told_in_the_servers_words(jobs: Jobs, kubelet: Kubelet) -> None:
    label = "pod-security.kubernetes.io/enforce"
    jobs.kubectl("label", "namespace", jobs.namespace, f"{label}=restricted")
    jobs.apply("x", 1)
    await becomes(lambda: jobs.condition("x", "ReplicaFailure"))
    shown = jobs.condition("x", "ReplicaFailure") or {}
    assert 'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false' in shown["message"]
    await becomes(lambda: any("violates" in event["message"] for event in jobs.events()))
    jobs.kubectl("label", "namespace", jobs.namespace, f"{label}-")
    await until_async(lambda: pods_are(kubelet, 2))
