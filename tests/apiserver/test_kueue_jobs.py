"""The real Kueue, with its integration for PyTorchJob and with Workloads of the operator's own.

`test_kueue.py` sends the requests of the integration without Kueue.
"""

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
HIGH = QUEUE | {kueue.LABEL_PRIORITY: kueue.HIGH}


@pytest.fixture(scope="module", params=["its integration", "our Workloads"])
def control_plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    external = request.param == "our Workloads"
    frameworks = (kueue.POD,) if external else (kueue.PYTORCHJOB, kueue.POD)
    with kueue.serving(tmp_path_factory.mktemp("kueue-jobs"), *frameworks, external=external) as plane:
        yield plane


def suspended(jobs: Jobs, name: str) -> bool:
    return ("Suspended", "True") in jobs.conditions(name)


async def test_a_job_is_admitted_runs_and_its_workload_finishes(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=2, labels=QUEUE)
    await becomes(lambda: jobs.condition("x", "Running"))
    assert holds(workload(jobs, "x"), "Admitted")
    await becomes(lambda: holds(workload(jobs, "x"), "PodsReady"))
    await kubelet.report("Succeeded")
    await becomes(lambda: holds(workload(jobs, "x"), "Finished"))


async def test_without_quota_a_job_stays_suspended_until_there_is_some(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=2, labels=QUEUE)
    await becomes(lambda: jobs.condition("x", "Running"))
    submit(jobs, "late", workers=2, labels=QUEUE)
    await becomes(lambda: suspended(jobs, "late"))
    assert not [name for name in await kubelet.pods() if name.startswith("late")]
    await kubelet.report("Succeeded")
    await becomes(lambda: jobs.condition("late", "Running"))


async def test_an_evicted_job_leaves_and_runs_again_when_it_is_admitted_again(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=2, labels=QUEUE)
    await becomes(lambda: jobs.condition("x", "Running"))
    submit(jobs, "late", workers=1, labels=HIGH)
    await becomes(lambda: jobs.condition("late", "Running"))
    await becomes(lambda: suspended(jobs, "x"))
    assert {name for name in await kubelet.pods() if name.startswith("x")} == set()
    assert jobs.get("x")["status"]["columns"]["restarts"] == 0
    await kubelet.report("Succeeded")
    await becomes(lambda: jobs.condition("x", "Running"))


async def test_a_failed_pod_is_replaced_while_the_workload_stays_admitted(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=2, labels=QUEUE)
    await becomes(lambda: jobs.condition("x", "Running"))
    before = await kubelet.pods()
    await kubelet.report("Failed", "x-worker-0", exit_code=137)
    await until_async(lambda: replaced(kubelet, before, "x-worker-0"))
    await becomes(lambda: jobs.condition("x", "Running"))
    after = await kubelet.pods()
    assert after["x-worker-1"]["metadata"]["uid"] == before["x-worker-1"]["metadata"]["uid"]
    assert holds(workload(jobs, "x"), "Admitted")


async def replaced(kubelet: Kubelet, before: dict[str, Object], name: str) -> bool:
    found = (await kubelet.pods()).get(name)
    return found is not None and found["metadata"]["uid"] != before[name]["metadata"]["uid"]


async def test_a_scaled_job_is_stopped_and_admitted_with_its_new_size(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=2, labels=QUEUE)
    await becomes(lambda: jobs.condition("x", "Running"))
    before = await kubelet.pods()
    jobs.kubectl("scale", "ptj", "x", "--replicas=1")
    await until_async(lambda: replaced(kubelet, before, "x-master-0"))
    await becomes(lambda: jobs.condition("x", "Running"))
    assert {*await kubelet.pods()} == {"x-master-0", "x-worker-0"}
    counts = [podset["count"] for podset in workload(jobs, "x")["spec"]["podSets"]]
    assert counts == [1, 1]


def patch(jobs: Jobs, kind: str, name: str, body: str) -> None:
    done = jobs.plane.kubectl("-n", jobs.namespace, "patch", kind, name, "--type=merge", "-p", body)
    assert done.returncode == 0, done.stderr


async def pods_of(kubelet: Kubelet, name: str) -> set[str]:
    return {pod for pod in await kubelet.pods() if pod.startswith(name)}


async def test_a_queue_that_is_drained_stops_its_jobs_and_starts_them_again(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", labels=QUEUE)
    await becomes(lambda: jobs.condition("x", "Running"))
    kueue.add_queue(jobs, kueue.QUEUE, 3, stopPolicy="HoldAndDrain")
    await becomes(lambda: suspended(jobs, "x"))
    await until_async(lambda: gone(kubelet, "x"))
    await becomes(lambda: not holds(workload(jobs, "x"), "QuotaReserved"))
    kueue.add_queue(jobs, kueue.QUEUE, 3, stopPolicy="None")
    await becomes(lambda: jobs.condition("x", "Running"))


async def gone(kubelet: Kubelet, name: str) -> bool:
    return not await pods_of(kubelet, name)


async def test_a_workload_that_is_held_back_runs_when_it_is_released(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", labels=QUEUE)
    await becomes(lambda: jobs.condition("x", "Running"))
    patch(jobs, "workloads.kueue.x-k8s.io", workload(jobs, "x")["metadata"]["name"], '{"spec": {"active": false}}')
    await becomes(lambda: suspended(jobs, "x"))
    await until_async(lambda: gone(kubelet, "x"))
    await becomes(lambda: not holds(workload(jobs, "x"), "QuotaReserved"))
    patch(jobs, "workloads.kueue.x-k8s.io", workload(jobs, "x")["metadata"]["name"], '{"spec": {"active": true}}')
    await becomes(lambda: jobs.condition("x", "Running"))


async def test_quota_is_borrowed_and_taken_back(jobs: Jobs, kubelet: Kubelet) -> None:
    cohort = {"cohortName": jobs.namespace}
    kueue.add_queue(jobs, "own", 2, **cohort)
    kueue.add_queue(jobs, "other", 2, **cohort)
    submit(jobs, "large", workers=3, labels={LABEL_KUEUE_QUEUE: "own"})
    await becomes(lambda: jobs.condition("large", "Running"))
    submit(jobs, "x", labels={LABEL_KUEUE_QUEUE: "other"})
    await becomes(lambda: jobs.condition("x", "Running"))
    assert suspended(jobs, "large")
    await until_async(lambda: gone(kubelet, "large"))
