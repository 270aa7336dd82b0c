"""The real Kueue divides a cohort by fair shares, and chooses the nodes of a job's pods by a topology."""

from collections.abc import Callable, Iterator

import pytest

from pytorchjob_operator.names import LABEL_KUEUE_QUEUE
from tests.apiserver import kueue_process as kueue
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.kueue_process import Object, holds, submit, workload
from tests.apiserver.operator_process import Jobs, Kubelet
from tests.waiting import becomes, until_async

pytestmark = kueue.MARKS
RACK = "example.com/rack"
RACKS = "racks"
IN_A_RACK = {"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}}


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    fair = {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}
    folder = tmp_path_factory.mktemp("kueue-placing")
    with kueue.serving(folder, kueue.POD, external=True, fairSharing=fair) as plane:
        for number in (0, 1):
            plane.kubectl("label", "node", f"simulated-{number}", f"{RACK}=r{number}", f"pool={RACKS}")
        places = kueue.topology(RACKS, RACK, "kubernetes.io/hostname")
        made = plane.apply(places, kueue.flavor(RACKS, nodeLabels={"pool": RACKS}, topologyName=RACKS), kueue.flavor())
        assert made.returncode == 0, made.stderr
        yield plane


@pytest.fixture
def jobs(make_jobs: Callable[[], Jobs]) -> Jobs:
    """A namespace without a queue."""
    return make_jobs()


async def placed(kubelet: Kubelet, job: str) -> dict[str, str]:
    """The node of each pod of a job that has one."""
    found = {name: pod["spec"].get("nodeName", "") for name, pod in (await kubelet.pods()).items()}
    return {name: node for name, node in found.items() if name.startswith(f"{job}-") and node}


def stopped_at(jobs: Jobs, name: str) -> Object:
    return next(each for each in jobs.get(name)["status"]["conditions"] if each["type"] == "Suspended")


async def test_an_elastic_job_gives_its_neighbour_the_fair_share(jobs: Jobs, kubelet: Kubelet) -> None:
    cohort = {"cohortName": jobs.namespace}
    kueue.add_queue(jobs, "shared", 4, **cohort)
    for name in ("ours", "theirs"):
        kueue.add_queue(jobs, name, 0, **cohort)
    elastic = {"minReplicas": 1, "maxReplicas": 4}
    submit(jobs, "x", workers=4, master=0, elastic=elastic, labels={LABEL_KUEUE_QUEUE: "ours"})
    await until_async(lambda: have(kubelet, "x", 4))
    await becomes(lambda: jobs.condition("x", "Running"))
    before, known = await kubelet.pods(), stopped_at(jobs, "x")
    submit(jobs, "late", workers=2, master=0, labels={LABEL_KUEUE_QUEUE: "theirs"})
    await becomes(lambda: jobs.condition("late", "Running"))
    assert await have(kubelet, "x", 2)
    now = await kubelet.pods()
    assert all(now[name]["metadata"]["uid"] == before[name]["metadata"]["uid"] for name in now if name.startswith("x"))
    assert (jobs.condition("x", "Suspended"), stopped_at(jobs, "x")) == (None, known)


async def have(kubelet: Kubelet, job: str, count: int) -> bool:
    return len(await placed(kubelet, job)) == count


async def test_all_pods_of_a_job_run_in_one_rack_or_none(jobs: Jobs, kubelet: Kubelet) -> None:
    assert jobs.plane.apply(*kueue.queue(jobs.namespace, kueue.QUEUE, 10_000, flavor=RACKS)).returncode == 0
    labels = {LABEL_KUEUE_QUEUE: kueue.QUEUE}
    submit(jobs, "wide", workers=2, master=0, cpus=600, labels=labels, pods=IN_A_RACK)
    await becomes(lambda: ("Waiting", "True") in jobs.conditions("wide"))
    submit(jobs, "x", workers=2, master=0, cpus=400, labels=labels, pods=IN_A_RACK)
    await until_async(lambda: have(kubelet, "x", 2))
    assert len({*(await placed(kubelet, "x")).values()}) == 1
    submit(jobs, "late", workers=2, master=0, cpus=400, labels=labels, pods=IN_A_RACK)
    await until_async(lambda: have(kubelet, "late", 2))
    assert {*(await placed(kubelet, "late")).values()} == {"simulated-0", "simulated-1"} - {
        *(await placed(kubelet, "x")).values()
    }
    assert not holds(workload(jobs, "wide"), "QuotaReserved")
    assert await have(kubelet, "wide", 0)
