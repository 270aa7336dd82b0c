"""The real Kueue without its integration for PyTorchJob: the pods of a job as a pod group.

Kueue keeps each pod of a group by a finalizer until a replacement exists, and this operator gives a replacement the
name of the lost pod. The annotation `pod-suspending-parent` makes Kueue leave the finalizer out.
"""

from collections.abc import Callable, Iterator

import pytest

from pytorchjob.view.reading import gates_of
from pytorchjob_operator.control.pace import FREE
from pytorchjob_operator.names import GATE_KUEUE, LABEL_KUEUE_GROUP, LABEL_KUEUE_QUEUE
from tests.apiserver import kueue_process as kueue
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.kueue_process import Object, delete_workload, holds, submit, workload
from tests.apiserver.operator_process import Audit, Jobs, Kubelet
from tests.waiting import becomes, until_async

pytestmark = kueue.MARKS
jobs = kueue.jobs


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with kueue.serving(tmp_path_factory.mktemp("kueue-pods"), kueue.POD) as plane:
        yield plane


def documented(name: str, total: int = 3, priority: str = "", **annotations: str) -> Object:
    """The metadata of docs/kueue.md for the templates of a job."""
    return {
        "labels": {
            LABEL_KUEUE_QUEUE: kueue.QUEUE,
            LABEL_KUEUE_GROUP: name,
            **({kueue.LABEL_PRIORITY: priority} if priority else {}),
        },
        "annotations": {
            f"{kueue.PREFIX}pod-group-total-count": str(total),
            **{f"{kueue.PREFIX}{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
    }


def without_finalizer(name: str, total: int = 3, priority: str = "", **annotations: str) -> Object:
    """The same, and what keeps the finalizer away."""
    found = documented(name, total, priority, pod_suspending_parent="pytorchjob", **annotations)
    found["labels"][f"{kueue.PREFIX}managed"] = "true"
    return found


BOTH = pytest.mark.parametrize("pods", [documented, without_finalizer], ids=["with finalizer", "without finalizer"])


def gated(pods: dict[str, Object], name: str) -> set[str]:
    """The job's pods that Kueue holds back."""
    return {pod for pod, found in pods.items() if pod.startswith(name) and GATE_KUEUE in gates_of(found)}


def uids(pods: dict[str, Object]) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in pods.items()}


async def started(jobs: Jobs, name: str) -> None:
    await becomes(lambda: jobs.condition(name, "Running"))


async def changes(kubelet: Kubelet, before: dict[str, str], name: str) -> None:
    """Wait until another pod has this name."""

    async def new() -> bool:
        return uids(await kubelet.pods()).get(name, before[name]) != before[name]

    await until_async(new)


@BOTH
async def test_all_pods_are_held_until_the_group_has_its_quota(
    jobs: Jobs, kubelet: Kubelet, pods: Callable[..., Object]
) -> None:
    submit(jobs, "x", workers=2, pods=pods("x"))
    await started(jobs, "x")
    submit(jobs, "late", workers=2, pods=pods("late"))
    await becomes(lambda: holds_back(jobs, "late"))
    assert gated(await kubelet.pods(), "late") == {"late-master-0", "late-worker-0", "late-worker-1"}
    await kubelet.report("Succeeded", *(name for name in await kubelet.pods() if name.startswith("x")))
    await becomes(lambda: holds(workload(jobs, "x"), "Finished"))
    await started(jobs, "late")


def holds_back(jobs: Jobs, name: str) -> bool:
    """Whether the job's status names the gate, and Kueue has its Workload."""
    waiting = jobs.condition(name, "Waiting") or {}
    return (
        waiting.get("reason") == "SchedulingGated" and GATE_KUEUE in waiting["message"] and bool(workload(jobs, name))
    )


async def test_a_failed_pod_keeps_its_name_until_its_finalizer_is_removed_by_hand(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=2, pods=documented("x"))
    await started(jobs, "x")
    before = uids(await kubelet.pods())
    await kubelet.report("Failed", "x-worker-0", exit_code=137)
    await becomes(lambda: holds(workload(jobs, "x"), "WaitingForReplacementPods"))
    await until_async(lambda: leaving(kubelet, "x-worker-0"))
    assert uids(await kubelet.pods()) == before
    jobs.kubectl("patch", "pod", "x-worker-0", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    await changes(kubelet, before, "x-worker-0")
    await started(jobs, "x")
    assert uids(await kubelet.pods())["x-worker-1"] == before["x-worker-1"]


async def leaving(kubelet: Kubelet, name: str) -> bool:
    return "deletionTimestamp" in (await kubelet.pods())[name]["metadata"]


async def test_without_the_finalizer_a_failed_pod_is_replaced_and_the_others_stay(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=2, pods=without_finalizer("x"))
    await started(jobs, "x")
    before = uids(await kubelet.pods())
    await kubelet.report("Failed", "x-worker-0", exit_code=137)
    await changes(kubelet, before, "x-worker-0")
    await started(jobs, "x")
    after = uids(await kubelet.pods())
    assert {name for name in before if after[name] != before[name]} == {"x-worker-0"}
    assert holds(workload(jobs, "x"), "Admitted")


async def test_without_the_finalizer_all_pods_may_fail_at_once(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=2, pods=without_finalizer("x"))
    await started(jobs, "x")
    before = uids(await kubelet.pods())
    await kubelet.report("Failed", exit_code=137)
    for name in before:
        await changes(kubelet, before, name)
    await started(jobs, "x")


async def test_without_the_finalizer_an_evicted_group_is_held_again_and_admitted_again(
    jobs: Jobs, kubelet: Kubelet
) -> None:
    submit(jobs, "x", workers=2, pods=without_finalizer("x"))
    await started(jobs, "x")
    submit(jobs, "first", pods=without_finalizer("first", total=2, priority=kueue.HIGH))
    await started(jobs, "first")
    await becomes(lambda: holds_back(jobs, "x"))
    assert len(gated(await kubelet.pods(), "x")) == 3
    assert jobs.get("x")["status"]["columns"]["restarts"] == 0
    await kubelet.report("Succeeded", *(name for name in await kubelet.pods() if name.startswith("first")))
    await started(jobs, "x")


async def test_an_evicted_group_leaves_only_after_its_workload_is_deleted_by_hand(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=2, pods=documented("x"))
    await started(jobs, "x")
    before = uids(await kubelet.pods())
    submit(jobs, "first", pods=documented("first", total=2, priority=kueue.HIGH))
    await started(jobs, "first")
    for name in before:
        assert await leaving(kubelet, name)
    delete_workload(jobs, "x")
    for name in before:
        await changes(kubelet, before, name)
    await becomes(lambda: holds_back(jobs, "x"))


async def test_pods_of_a_group_that_was_never_complete_are_deleted_with_their_job(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=2, pods=documented("x", total=4))
    await becomes(lambda: bool(jobs.condition("x", "Waiting")))
    assert not workload(jobs, "x")
    jobs.kubectl("delete", "ptj", "x")
    await until_async(lambda: left(kubelet))


async def test_a_deleted_job_that_waits_leaves_its_pods_until_its_workload_is_deleted_too(
    jobs: Jobs, kubelet: Kubelet
) -> None:
    submit(jobs, "x", workers=2, pods=documented("x"))
    await started(jobs, "x")
    submit(jobs, "late", workers=2, pods=documented("late"))
    await becomes(lambda: holds_back(jobs, "late"))
    jobs.kubectl("delete", "ptj", "late")
    for name in gated(await kubelet.pods(), "late"):
        await until_async(lambda name=name: leaving(kubelet, name))
    await becomes(lambda: holds(workload(jobs, "late"), "WaitingForReplacementPods"))
    assert len(gated(await kubelet.pods(), "late")) == 3
    delete_workload(jobs, "late")
    await until_async(lambda: are(kubelet, 3))


async def left(kubelet: Kubelet) -> bool:
    return not await kubelet.pods()


async def test_without_the_finalizer_a_deleted_job_takes_its_pods_and_its_workload_along(
    jobs: Jobs, kubelet: Kubelet
) -> None:
    submit(jobs, "x", workers=2, pods=without_finalizer("x"))
    await started(jobs, "x")
    submit(jobs, "late", workers=2, pods=without_finalizer("late"))
    await becomes(lambda: holds_back(jobs, "late"))
    jobs.kubectl("delete", "ptj", "--all")
    await until_async(lambda: left(kubelet))
    await becomes(lambda: not workload(jobs, "x") and not workload(jobs, "late"))


@pytest.mark.parametrize(
    ("policy", "end"),
    [
        pytest.param({"cleanPodPolicy": "All"}, "Succeeded", id="succeeded"),
        pytest.param({"cleanPodPolicy": "All", "restart": "Never"}, "Failed", id="failed"),
    ],
)
async def test_the_quota_is_free_when_the_pods_of_an_ended_job_are_deleted(
    jobs: Jobs, kubelet: Kubelet, policy: dict[str, str], end: str
) -> None:
    submit(jobs, "x", workers=2, pods=without_finalizer("x"), **policy)
    await started(jobs, "x")
    await kubelet.report(end, "x-master-0")
    await becomes(lambda: jobs.condition("x", end))
    submit(jobs, "late", workers=2, pods=without_finalizer("late"))
    await started(jobs, "late")


async def test_a_group_can_shrink_and_grow_again_up_to_its_total_count(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=2, pods=without_finalizer("x"))
    await started(jobs, "x")
    before = uids(await kubelet.pods())
    jobs.kubectl("scale", "ptj", "x", "--replicas=1")
    await until_async(lambda: are(kubelet, 2))
    jobs.kubectl("scale", "ptj", "x", "--replicas=2")
    await changes(kubelet, before, "x-worker-1")
    await started(jobs, "x")
    assert uids(await kubelet.pods())["x-worker-0"] == before["x-worker-0"]


async def are(kubelet: Kubelet, count: int) -> bool:
    return len(await kubelet.pods()) == count


async def test_pods_beyond_the_total_count_are_created_again_ever_more_slowly(jobs: Jobs, kubelet: Kubelet) -> None:
    submit(jobs, "x", workers=2, pods=without_finalizer("x"))
    await started(jobs, "x")
    before, audit = uids(await kubelet.pods()), Audit(jobs.plane)

    def creations() -> int:
        requests = audit.operator(jobs.namespace)
        return sum(asked[:2] == ("create", "pods") and asked.name == "x-worker-2" for asked in requests)

    jobs.kubectl("scale", "ptj", "x", "--replicas=3")
    await becomes(lambda: creations() > FREE)
    submit(jobs, "late", workers=2, pods=without_finalizer("late"))
    await becomes(lambda: holds_back(jobs, "late"))
    assert creations() < 4 * FREE
    assert before.items() <= uids(await kubelet.pods()).items()


@pytest.mark.parametrize("fast", [True, False], ids=["with fast admission", "without"])
async def test_a_job_with_fewer_pods_than_the_total_count_starts_only_with_fast_admission(
    jobs: Jobs, kubelet: Kubelet, fast: bool
) -> None:
    more = {"pod_group_fast_admission": "true"} if fast else {}
    submit(jobs, "x", pods=without_finalizer("x", total=3, **more))
    if fast:
        await started(jobs, "x")
        (podset,) = workload(jobs, "x")["spec"]["podSets"]
        assert podset["count"] == 3
    else:
        await becomes(lambda: jobs.condition("x", "Waiting"))
        jobs.kubectl("scale", "ptj", "x", "--replicas=2")
        await started(jobs, "x")
