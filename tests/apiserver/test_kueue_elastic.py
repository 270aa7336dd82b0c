"""Elastic jobs under the quota of the real Kueue: they start with their minimum, grow, and shrink for others."""

from collections.abc import Iterator

import pytest

from pytorchjob_operator.names import LABEL_KUEUE_QUEUE
from tests.apiserver import kueue_process as kueue
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.kueue_process import Object, holds, submit, workload
from tests.apiserver.operator_process import Jobs, Kubelet
from tests.waiting import becomes, until_async

pytestmark = kueue.MARKS
jobs = kueue.jobs
QUEUE = {LABEL_KUEUE_QUEUE: kueue.QUEUE}
ELASTIC = {"minReplicas": 2, "maxReplicas": 4}


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with kueue.serving(tmp_path_factory.mktemp("kueue-elastic"), kueue.POD, external=True) as plane:
        yield plane


async def have(kubelet: Kubelet, name: str, *workers: int) -> bool:
    found = {pod for pod in await kubelet.pods() if pod.startswith(f"{name}-worker-")}
    return found == {f"{name}-worker-{index}" for index in workers}


async def uids(kubelet: Kubelet) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in (await kubelet.pods()).items()}


def waited(jobs: Jobs, name: str) -> Object:
    """The condition of a job that has waited in its queue."""
    return next(each for each in jobs.get(name)["status"]["conditions"] if each["type"] == "Suspended")


async def test_two_four_two_workers_as_quota_comes_and_goes(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "other", labels=QUEUE, workers=1, master=0)
    await becomes(lambda: jobs.condition("other", "Running"))
    submit(jobs, "x", workers=4, master=0, elastic=ELASTIC, labels=QUEUE)
    await until_async(lambda: have(kubelet, "x", 0, 1))
    await becomes(lambda: jobs.condition("x", "Running"))
    first, before = await uids(kubelet), waited(jobs, "x")

    kueue.add_queue(jobs, kueue.QUEUE, 5)
    await until_async(lambda: have(kubelet, "x", 0, 1, 2, 3))
    submit(jobs, "late", labels=QUEUE, workers=2, master=0)
    await until_async(lambda: have(kubelet, "x", 0, 1))
    await becomes(lambda: jobs.condition("late", "Running"))
    await kubelet.report("Succeeded", "late-worker-0", "late-worker-1")
    await until_async(lambda: have(kubelet, "x", 0, 1, 2, 3))

    now = await uids(kubelet)
    assert {name: now[name] for name in ("x-worker-0", "x-worker-1")} == {
        name: first[name] for name in ("x-worker-0", "x-worker-1")
    }
    assert waited(jobs, "x") == before, "it was never suspended again"
    assert jobs.condition("x", "Running")
    assert jobs.get("x")["status"]["columns"]["restarts"] == 0


async def test_an_elastic_job_without_quota_for_its_minimum_waits(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "other", labels=QUEUE, workers=2, master=0)
    await becomes(lambda: jobs.condition("other", "Running"))
    submit(jobs, "x", workers=4, master=0, elastic=ELASTIC, labels=QUEUE)
    await becomes(lambda: ("Waiting", "True") in jobs.conditions("x"))
    assert not holds(workload(jobs, "x"), "QuotaReserved")
    assert await have(kubelet, "x")


async def test_a_job_that_has_ended_keeps_no_quota(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=3, master=0, elastic=ELASTIC, labels=QUEUE)
    await until_async(lambda: have(kubelet, "x", 0, 1, 2))
    await kubelet.report("Succeeded")
    await becomes(lambda: jobs.condition("x", "Succeeded"))
    submit(jobs, "next", labels=QUEUE, workers=3, master=0)
    await becomes(lambda: jobs.condition("next", "Running"))


async def test_without_a_class_a_job_has_the_priority_of_the_clusters_default(jobs: Jobs) -> None:
    usual = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "usual"}}
    assert jobs.plane.apply({**usual, "value": 50, "globalDefault": True}).returncode == 0
    try:
        submit(jobs, "x", workers=1, master=0, labels=QUEUE)
        await becomes(lambda: workload(jobs, "x"))
        spec = workload(jobs, "x")["spec"]
        assert (spec["priority"], spec["priorityClassRef"]["name"]) == (50, "usual")
    finally:
        jobs.plane.kubectl("delete", "priorityclass", "usual")
