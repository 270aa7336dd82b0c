"""Running jobs of this operator are given back to training-operator v1, the real program, and come back."""

import asyncio
from collections.abc import Callable

import pytest

from tests.apiserver import v1_process
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import Audit, Jobs, Kubelet
from tests.apiserver.takeover import (
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    TRIO,
    Reign,
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
from tests.waiting import becomes, until_async

pytestmark = [pytest.mark.apiserver]


@pytest.fixture
def jobs(make_jobs: Callable[[], Jobs]) -> Jobs:
    """A namespace that nobody serves until a test says who."""
    return make_jobs()


def of_v1(audit: Audit, jobs: Jobs, resource: str) -> list[str]:
    """What v1 did to these objects of the job, `list` and `watch` aside."""
    asked = (request for request in audit.all() if request.user_agent.startswith(v1_process.USER_AGENT))
    return [request.verb for request in asked if (request.namespace, request.resource) == (jobs.namespace, resource)]


async def test_a_running_job_of_ours_goes_on_under_v1(
    v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet, control_plane: ControlPlane
) -> None:
    with ours():
        pods = await runs(jobs, kubelet)
    before, audit = status(jobs), Audit(control_plane)
    with v1():
        await becomes(lambda: services(jobs) == ["x", *TRIO])
        await asyncio.sleep(2)
        assert of_v1(audit, jobs, "pods") == []
        assert status(jobs) == before
        await kubelet.report("Succeeded")
        await becomes(lambda: jobs.conditions("x") == SUCCEEDED)
    assert (jobs.condition("x", "Succeeded") or {})["message"] == "PyTorchJob x is successfully completed."
    assert await uids(kubelet) == pods
    assert services(jobs) == ["x", *TRIO]


async def test_v1_makes_a_failed_pod_of_ours_again(v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet) -> None:
    with ours():
        before = await runs(jobs, kubelet)
        await kubelet.report("Failed", "x-worker-0", exit_code=1)
        await until_async(lambda: replaced(kubelet, "x-worker-0", before))
        await kubelet.report("Running", "x-worker-0")
        await becomes(lambda: jobs.conditions("x") == RUNNING)
    assert status(jobs)["restarts"] == 1
    before = await uids(kubelet)
    with v1():
        await kubelet.report("Failed", "x-worker-1", exit_code=1)
        await until_async(lambda: replaced(kubelet, "x-worker-1", before))
        await kubelet.report("Running", "x-worker-1")
        await becomes(lambda: jobs.conditions("x") == RUNNING)


async def test_with_v1s_services_switched_on_pods_of_ours_find_a_master_that_v1_made_again(
    v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet
) -> None:
    with ours(PYTORCHJOB_REPLICA_SERVICES="true"):
        before = await runs(jobs, kubelet)
    assert services(jobs) == ["x", *TRIO]
    assert {env(pod, "MASTER_ADDR") for pod in (await kubelet.pods()).values()} == {"x-master-0"}
    with v1():
        await kubelet.report("Failed", "x-master-0", exit_code=1)
        await until_async(lambda: replaced(kubelet, "x-master-0", before))
    assert services(jobs) == ["x", *TRIO]


async def test_a_job_that_we_suspended_is_resumed_by_v1(v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet) -> None:
    with ours():
        await runs(jobs, kubelet)
        suspend(jobs, True)
        await becomes(lambda: jobs.conditions("x") == SUSPENDED and jobs.count("pods", "services") == 0)
    with v1():
        suspend(jobs, False)
        await until_async(lambda: pods_are(kubelet, TRIO))
        await kubelet.report("Running")
        await becomes(lambda: jobs.condition("x", "Running"))


async def test_a_job_goes_to_v1_and_comes_back(v1: Reign, ours: Reign, jobs: Jobs, kubelet: Kubelet) -> None:
    with ours():
        pods = await runs(jobs, kubelet)
    before = status(jobs)
    with v1():
        await becomes(lambda: services(jobs) == ["x", *TRIO])
    with ours():
        await taken_over(jobs)
        await asyncio.sleep(2)
        assert status(jobs) == before
        assert await uids(kubelet) == pods
        await kubelet.report("Succeeded")
        await becomes(lambda: jobs.conditions("x") == SUCCEEDED)
