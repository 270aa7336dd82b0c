"""Running jobs of training-operator v1 are taken over. The v1 is the real program; pods report what the test says."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apiserver import v1_process
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.conftest import CRD, install
from tests.apiserver.operator_process import Audit, Jobs, Kubelet
from tests.apiserver.takeover import (
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    TRIO,
    Object,
    Reign,
    active,
    env,
    pods_are,
    replaced,
    runs,
    services,
    status,
    suspend,
    taken_over,
    uids,
)
from tests.factories import make_template
from tests.waiting import becomes, until_async

pytestmark = [pytest.mark.apiserver]


@pytest.fixture
def jobs(make_jobs: Callable[[], Jobs]) -> Jobs:
    """A namespace that nobody serves until a test says who."""
    return make_jobs()


async def test_a_running_job_of_v1_goes_on_untouched(
    v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet, control_plane: ControlPlane
) -> None:
    with v1():
        pods = await runs(jobs, kubelet)
    before, audit = status(jobs), Audit(control_plane)
    with ours():
        await taken_over(jobs)
        await asyncio.sleep(3)
        assert audit.counts(jobs.namespace) == {
            ("get", "pytorchjobs"): 1,
            ("create", "services"): 1,
            ("patch", "pytorchjobs/status"): 1,
        }
        assert take_overs(jobs) == [
            "PyTorchJob x continues with 3 pods that training-operator v1 created; none was created again."
        ]
        assert {key: status(jobs)[key] for key in ("conditions", "startTime")} == {
            key: before[key] for key in ("conditions", "startTime")
        }
        assert active(jobs) == [1, 2]
        assert services(jobs) == ["x", *TRIO]
        assert await uids(kubelet) == pods
        await kubelet.report("Succeeded")
        await becomes(lambda: jobs.conditions("x") == SUCCEEDED)
    assert (jobs.condition("x", "Succeeded") or {})["message"] == "PyTorchJob x is successfully completed."
    assert await uids(kubelet) == pods
    assert services(jobs) == ["x", *TRIO]


def take_overs(jobs: Jobs) -> list[str]:
    """The messages of the events about a take-over."""
    return [event["message"] for event in jobs.events() if event["reason"] == "TakenOver"]


async def test_the_operator_that_comes_next_reports_no_take_over(
    v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet
) -> None:
    with v1():
        await runs(jobs, kubelet)
    with ours():
        await becomes(lambda: len(take_overs(jobs)) == 1)
    with ours():
        jobs.kubectl("scale", "ptj", "x", "--replicas=1")
        await until_async(lambda: pods_are(kubelet, TRIO[:2]))
        await becomes(lambda: active(jobs) == [1, 1])
    assert [event["count"] for event in jobs.events() if event["reason"] == "TakenOver"] == [1]


async def test_the_definition_is_swapped_under_a_running_job_too(
    v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet, control_plane: ControlPlane
) -> None:
    replace_crd(control_plane, v1_process.crd())
    try:
        with v1():
            pods = await runs(jobs, kubelet)
        before = jobs.get("x")
    finally:
        replace_crd(control_plane, CRD)
    with ours():
        await taken_over(jobs)
        assert jobs.get("x")["spec"] == before["spec"]
        assert await uids(kubelet) == pods
        await kubelet.report("Succeeded")
        await becomes(lambda: jobs.conditions("x") == SUCCEEDED)


def replace_crd(plane: ControlPlane, path: Path) -> None:
    done = plane.kubectl("replace", "-f", str(path))
    assert done.returncode == 0, done.stderr
    install(plane, CRD) if path == CRD else None


async def test_a_failed_pod_of_v1_is_made_again_by_its_name(
    v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet
) -> None:
    with v1():
        before = await runs(jobs, kubelet)
    with ours():
        await kubelet.report("Failed", "x-worker-0", exit_code=1)
        await until_async(lambda: replaced(kubelet, "x-worker-0", before))
        pods = await kubelet.pods()
        assert env(pods["x-worker-0"], "MASTER_ADDR") == "x-master-0"
        assert env(pods["x-worker-0"], "RANK") == "1"
        await kubelet.report("Running", "x-worker-0")
        await becomes(lambda: jobs.conditions("x") == RUNNING)
    assert {**await uids(kubelet), "x-worker-0": ""} == {**before, "x-worker-0": ""}


async def test_a_job_that_v1_has_only_begun_gets_the_rest_from_us(
    v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet
) -> None:
    with v1():
        jobs.apply("x", 2)
        await until_async(lambda: pods_are(kubelet, TRIO))
        await becomes(lambda: jobs.conditions("x"))
    before = await uids(kubelet)
    jobs.kubectl("delete", "service", "x-master-0")
    jobs.kubectl("delete", "pod", "x-worker-1", "--force", "--grace-period=0")
    with ours():
        await until_async(lambda: replaced(kubelet, "x-worker-1", before))
        await becomes(lambda: services(jobs) == ["x", *TRIO])
        await kubelet.report("Running")
        await becomes(lambda: jobs.conditions("x") == RUNNING)
    assert {**await uids(kubelet), "x-worker-1": ""} == {**before, "x-worker-1": ""}


async def test_an_elastic_job_of_v1_keeps_its_autoscaler_and_its_meeting_point(
    v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet
) -> None:
    with v1():
        apply_elastic(jobs)
        await until_async(lambda: pods_are(kubelet, TRIO[1:]))
        await kubelet.report("Running")
        await becomes(lambda: jobs.conditions("x") == RUNNING)
    before, pods = autoscaler(jobs), await uids(kubelet)
    with ours():
        await becomes(lambda: "labels" in autoscaler(jobs)["metadata"])
        assert autoscaler(jobs)["metadata"]["uid"] == before["metadata"]["uid"]
        assert autoscaler(jobs)["spec"] == before["spec"]
        jobs.kubectl("scale", "ptj", "x", "--replicas=3")
        await until_async(lambda: pods_are(kubelet, [*TRIO[1:], "x-worker-2"]))
        assert env((await kubelet.pods())["x-worker-2"], "PET_RDZV_ENDPOINT") == "x-worker-0:23456"
        assert pods.items() <= (await uids(kubelet)).items()
        await kubelet.report("Succeeded", "x-worker-0")
        await becomes(lambda: jobs.conditions("x") == SUCCEEDED)
        await becomes(lambda: jobs.count("horizontalpodautoscalers") == 0)


def apply_elastic(jobs: Jobs) -> None:
    """Two workers that a CPU metric may scale."""
    target = {"type": "Utilization", "averageUtilization": 50}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    spec = {
        "elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "metrics": metrics},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": make_template()}},
    }
    meta = {"name": "x", "namespace": jobs.namespace}
    done = jobs.plane.apply({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec})
    assert done.returncode == 0, done.stderr


def autoscaler(jobs: Jobs) -> Object:
    return jobs.plane.get("-n", jobs.namespace, "horizontalpodautoscaler", "x")


async def test_a_job_of_v1_is_scaled_up_and_down(v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet) -> None:
    with v1():
        before = await runs(jobs, kubelet)
    with ours():
        jobs.kubectl("scale", "ptj", "x", "--replicas=3")
        await until_async(lambda: pods_are(kubelet, [*TRIO, "x-worker-2"]))
        assert before.items() <= (await uids(kubelet)).items()
        jobs.kubectl("scale", "ptj", "x", "--replicas=1")
        await until_async(lambda: pods_are(kubelet, TRIO[:2]))
        await becomes(lambda: services(jobs) == ["x", *TRIO[:2]])
    assert (await uids(kubelet)).items() <= before.items()


async def test_a_job_that_v1_suspended_is_resumed(v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet) -> None:
    with v1():
        await runs(jobs, kubelet)
        suspend(jobs, True)
        await becomes(lambda: jobs.conditions("x") == SUSPENDED and jobs.count("pods", "services") == 0)
    before = status(jobs)["startTime"]
    with ours():
        await taken_over(jobs)
        assert jobs.count("pods", "services") == 0
        suspend(jobs, False)
        await until_async(lambda: pods_are(kubelet, TRIO))
        await kubelet.report("Running")
        await becomes(lambda: jobs.condition("x", "Running"))
    assert jobs.conditions("x") == [("Created", "True"), ("Suspended", "False"), ("Running", "True")]
    assert status(jobs)["startTime"] > before


async def test_suspending_a_job_of_v1_takes_its_services_too(
    v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet
) -> None:
    with v1():
        await runs(jobs, kubelet)
    with ours():
        await taken_over(jobs)
        suspend(jobs, True)
        await becomes(lambda: jobs.conditions("x") == SUSPENDED)
        await becomes(lambda: jobs.count("pods", "services") == 0)


async def test_clean_up_of_a_job_of_v1_takes_its_services_too(
    v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet
) -> None:
    with v1():
        await runs(jobs, kubelet, {"cleanPodPolicy": "All"})
    with ours():
        await kubelet.report("Succeeded", "x-master-0")
        await becomes(lambda: jobs.conditions("x") == SUCCEEDED)
        await becomes(lambda: jobs.count("pods", "services") == 0)


@pytest.mark.parametrize(
    ("phase", "exit_code", "end"),
    [
        pytest.param("Succeeded", 0, "Succeeded", id="success"),
        pytest.param("Failed", 1, "Failed", id="a permanent exit code, for which v1 writes no completionTime"),
    ],
)
async def test_a_job_that_ended_under_v1_keeps_its_end_until_its_ttl(
    v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet, phase: str, exit_code: int, end: str
) -> None:
    with v1():
        await runs(jobs, kubelet, restartPolicy="ExitCode")
        await kubelet.report(phase, "x-master-0", exit_code=exit_code)
        await becomes(lambda: jobs.condition("x", end))
        await asyncio.sleep(1)  # v1 corrects the counters with a second write
    before = status(jobs)
    with ours():
        jobs.apply("marker", 1)
        await becomes(lambda: jobs.conditions("marker"))
        assert status(jobs) == before
        jobs.patch("x", {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 1}}})
        await becomes(lambda: "pytorchjob.kubeflow.org/x" not in jobs.kubectl("get", "ptj", "-o", "name").split())
