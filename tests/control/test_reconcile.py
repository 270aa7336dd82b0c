"""Observe, plan, apply, against an API server that refuses, breaks, lags and forgets."""

from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from pytorchjob_operator.control.pace import FREE
from pytorchjob_operator.control.reconcile import FENCED, SOON
from pytorchjob_operator.errors import Conflict, RequestRefused, Unavailable
from pytorchjob_operator.names import KUEUE_PREBUILT, LABEL_KUEUE_QUEUE, ChildKind, LossCause
from pytorchjob_operator.observed import Options
from tests.control.world import JOBS, PODS, SERVICES, World, creates_pod, owned_by, quota
from tests.factories import JOB_UID, make_job
from tests.fakes.apiserver import Request, failure

WORKLOADS = "apis/kueue.x-k8s.io/v1beta2/workloads"
ALL = ["x-master-0", "x-worker-0", "x-worker-1", "x-worker-2"]


async def started(world: World, workers: int = 3, **job: str) -> None:
    """A job whose pods run, with a status that shows it."""
    world.submit(make_job(workers=workers, **job))  # type: ignore[arg-type]
    await world.reconcile()
    world.report("Running")
    await world.reconcile()
    world.api.requests.clear()


async def test_a_life_costs_its_pods_one_service_and_three_status_writes(world: World) -> None:
    world.submit(make_job(workers=3))
    await world.reconcile()
    for phase in ("Running", "Succeeded"):
        world.report(phase)
        await world.reconcile()
    assert world.asked() == {("create", "services"): 1, ("create", "pods"): 4, ("patch", "pytorchjobs/status"): 3}
    assert world.conditions == {"Created": "PyTorchJobCreated", "Succeeded": "PyTorchJobSucceeded"}
    assert world.events == ["SuccessfulCreatePod", "PyTorchJobSucceeded"]


@pytest.mark.parametrize("refreshed", [True, False], ids=["the watch brought it", "only replies were seen"])
async def test_a_second_look_asks_nothing(world: World, refreshed: bool) -> None:
    await started(world)
    if refreshed:
        world.refresh()
    assert await world.reconcile() is None
    assert world.api.requests == []


async def test_pods_that_start_one_by_one_cost_one_write_at_its_time(world: World) -> None:
    world.submit(make_job(workers=3))
    await world.reconcile()
    world.api.requests.clear()
    waits = []
    for name in ALL[:3]:
        world.report("Running", name)
        waits.append(await world.reconcile())
        world.wait(0.5)
    assert (waits, world.asked()) == ([2.0, 1.5, 1.0], {})
    world.wait(0.5)
    await world.reconcile()
    assert "Running" in world.conditions


async def test_children_that_the_cache_has_not_seen_are_taken_for_ours_and_not_made_twice(world: World) -> None:
    world.submit(make_job(workers=1))
    world.api.put(PODS, owned_by(JOB_UID, "x-worker-0"))
    await world.reconcile()
    assert world.asked()[("get", "pods")] == 1
    assert sorted(world.pods) == ["x-master-0", "x-worker-0"]
    assert len(world.caches.pods.by_owner(JOB_UID)) == 2


async def test_a_name_that_belongs_to_another_is_told_and_left_alone(world: World) -> None:
    world.api.put(PODS, {"kind": "Pod", "metadata": {"name": "x-worker-1", "namespace": "ns"}})
    world.submit(make_job(workers=3))
    with pytest.raises(
        RequestRefused, match="'x-worker-1' already exists and does not belong to this job: delete it or"
    ):
        await world.reconcile()
    assert world.conditions["ReplicaFailure"] == "NameTaken"
    assert world.events == ["NameTaken"]
    assert world.asked()[("delete", "pods")] == 0


async def test_a_workload_that_was_made_for_a_job_becomes_its_child(world: World) -> None:
    made = {"name": "made-before", "namespace": "ns", "labels": {"kueue.x-k8s.io/multikueue-origin": "manager"}}
    world.api.put(WORKLOADS, {"kind": "Workload", "metadata": made, "spec": {"podSets": []}})
    world.caches.options = Options(kueue=True)
    world.submit(make_job(meta={"labels": {LABEL_KUEUE_QUEUE: "q"}, "annotations": {KUEUE_PREBUILT: "made-before"}}))
    await world.reconcile()
    [child] = world.caches.children[ChildKind.WORKLOAD].by_owner(JOB_UID)
    kept = world.api.objects[WORKLOADS]["ns", "made-before"]
    assert (child.name, kept["spec"]) == ("made-before", {"podSets": []})
    assert made["labels"].items() <= kept["metadata"]["labels"].items()
    await world.reconcile()
    assert world.pods == [], "it waits for the queue"


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param(
            {"ownerReferences": [{"kind": "PyTorchJob", "name": "x", "uid": "old", "controller": True}]}, id="its child"
        ),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, id="on its way out"),
    ],
)
async def test_a_pod_of_a_deleted_job_of_this_name_is_waited_for_without_an_event(
    world: World, meta: dict[str, Any]
) -> None:
    world.api.put(PODS, {"kind": "Pod", "metadata": {"name": "x-worker-1", "namespace": "ns", **meta}})
    world.submit(make_job(workers=2))
    with pytest.raises(Unavailable, match="waiting until pods 'x-worker-1' of the deleted job of this name is gone"):
        await world.reconcile()
    assert world.conditions["ReplicaFailure"] == "DeletedJobRemains"
    assert "DeletedJobRemains" not in world.events
    world.api.objects[PODS].pop(next(key for key in world.api.objects[PODS] if "x-worker-1" in str(key)))
    await world.reconcile()
    world.refresh()
    await world.reconcile()
    assert "x-worker-1" in world.pods
    assert "ReplicaFailure" not in world.conditions


async def test_a_refusal_is_told_once_and_what_was_made_is_kept(world: World) -> None:
    world.submit(make_job(workers=3))
    world.refuse_pods(quota, after=2)
    for _ in range(3):
        with pytest.raises(RequestRefused, match="exceeded quota: few"):
            await world.reconcile()
    assert (len(world.pods), world.events) == (2, ["FailedCreatePod"])
    assert "exceeded quota: few" in world.job.status.conditions[-1].message
    assert world.asked()[("patch", "pytorchjobs/status")] == 1


async def test_each_reason_of_a_refusal_is_told(world: World) -> None:
    world.submit(make_job(workers=1))
    world.api.failing = _refusing_children
    with pytest.raises(RequestRefused, match="FailedCreateService: no services; FailedCreatePod: no pods"):
        await world.reconcile()
    assert world.events == ["FailedCreateService"]


def _refusing_children(request: Request) -> web.Response | None:
    plural = request.path.rpartition("/")[2]
    return failure(403, "Forbidden", f"no {plural}") if plural in ("services", "pods") else None


async def test_a_pod_of_another_namespace_is_no_pod_of_the_job(world: World) -> None:
    """An owner's uid is only a text: anybody who may create pods anywhere can write it."""
    world.submit(make_job(workers=1))
    pod = owned_by(JOB_UID, "x-worker-0")
    world.api.put(PODS, {**pod, "metadata": {**pod["metadata"], "namespace": "evil"}, "status": {"phase": "Failed"}})
    world.refresh()
    await world.reconcile()
    assert ("ns", "x-worker-0") in world.api.objects[PODS]


async def test_a_refusal_whose_status_could_not_be_written_is_told_the_next_time(world: World) -> None:
    world.submit(make_job(workers=1))
    world.refuse_pods(quota)
    world.api.put(JOBS, world.job.model_copy(update={"metadata": changed(world)}).to_api())
    with pytest.raises(Conflict):
        await world.reconcile()
    world.refresh()
    with pytest.raises(RequestRefused):
        await world.reconcile()
    assert (world.events, world.conditions["ReplicaFailure"]) == (["FailedCreatePod"], "FailedCreatePod")


async def test_a_refusal_that_passes_is_taken_back(world: World) -> None:
    world.submit(make_job(workers=3))
    world.refuse_pods(quota, after=2)
    with pytest.raises(RequestRefused):
        await world.reconcile()
    world.heal()
    await world.reconcile()
    assert sorted(world.pods) == ALL
    assert "ReplicaFailure" not in world.conditions


@pytest.mark.parametrize("carried_out", [False, True], ids=["it was not carried out", "it was, and the reply lost"])
async def test_an_error_in_the_middle_loses_and_doubles_nothing(world: World, carried_out: bool) -> None:
    world.submit(make_job(workers=3))
    world.api.failing = broken_once(world, carried_out)
    with pytest.raises(Unavailable):
        await world.reconcile()
    assert world.conditions == {}
    await world.reconcile()
    assert sorted(world.pods) == ALL
    assert world.conditions == {"Created": "PyTorchJobCreated"}
    versions = [kind for _, collection, kind, _ in world.api.history if collection == PODS]
    assert versions == ["ADDED"] * 4


def broken_once(world: World, carried_out: bool) -> Callable[[Request], web.Response | None]:
    left = iter([True])

    def fault(request: Request) -> web.Response | None:
        if not (creates_pod(request) and request.body["metadata"]["name"] == "x-worker-1" and next(left, False)):
            return None
        if carried_out:
            world.api.put(PODS, request.body)
        return failure(500, "InternalError", "etcd is away")

    return fault


async def test_a_job_that_somebody_changed_meanwhile_is_looked_at_again(world: World) -> None:
    world.submit(make_job(workers=1))
    world.api.put(JOBS, world.job.model_copy(update={"metadata": changed(world)}).to_api())
    with pytest.raises(Conflict):
        await world.reconcile()
    world.refresh()
    await world.reconcile()
    assert world.conditions == {"Created": "PyTorchJobCreated"}
    assert world.asked()[("create", "pods")] == 2


def changed(world: World) -> object:
    return world.job.metadata.model_copy(update={"labels": {"a": "b"}})


async def test_a_job_that_is_gone_unseen_costs_one_read_and_makes_nothing(world: World) -> None:
    await started(world)
    vanish(world)
    assert await world.reconcile() == SOON
    assert world.asked() == {("get", "pytorchjobs"): 1}
    assert (await world.reconcile(), world.pods) == (None, [])
    assert len(world.api.requests) == 1


async def test_a_new_job_that_is_gone_unseen_is_forgotten_at_its_status_write(world: World) -> None:
    world.submit(make_job(workers=1))
    world.api.remove(JOBS, "x", "ns")
    await world.reconcile()
    assert world.caches.jobs.get(JOB_UID) is None


def vanish(world: World) -> None:
    """Job and pods are gone; the watch has not reported the job's deletion."""
    for name in world.pods:
        gone = world.caches.pods.get("ns", name)
        assert gone is not None
        world.api.remove(PODS, name, "ns")
        world.caches.pods.gone("ns", name, gone.uid)
    world.api.remove(JOBS, "x", "ns")


async def test_a_pod_that_vanished_is_made_again_after_one_read_of_the_job(world: World) -> None:
    await started(world)
    gone = world.caches.pods.get("ns", "x-worker-1")
    assert gone is not None
    world.api.remove(PODS, "x-worker-1", "ns")
    world.caches.pods.gone("ns", "x-worker-1", gone.uid)
    await world.reconcile()
    assert sorted(world.pods) == ALL
    assert (world.asked()[("get", "pytorchjobs")], world.asked()[("create", "pods")]) == (1, 1)


async def test_a_pod_that_vanishes_again_and_again_is_made_ever_more_slowly(world: World) -> None:
    await started(world)
    wait = None
    for _ in range(2 * FREE):
        if "x-worker-1" in world.pods:
            world.api.remove(PODS, "x-worker-1", "ns")
        world.refresh()
        wait = await world.reconcile()
    assert world.asked()[("create", "pods")] == FREE
    assert wait == 1.0
    assert "x-worker-1" not in world.pods
    world.wait(1.0)
    await world.reconcile()
    assert "x-worker-1" in world.pods


async def test_without_the_lead_nothing_is_asked(world: World) -> None:
    world.submit(make_job())
    world.fence.holds = lambda: False
    assert await world.reconcile() == FENCED
    assert world.api.requests == []


async def test_a_lead_that_is_lost_midway_stops_the_very_next_write(world: World) -> None:
    world.submit(make_job(workers=200))
    world.fence.holds = lambda: world.api.count("create") < 40
    with pytest.raises(Unavailable, match="is not the leader"):
        await world.reconcile()
    in_flight = 32
    assert 40 <= world.asked()[("create", "pods")] + world.asked()[("create", "services")] < 40 + in_flight
    assert world.conditions == {}


async def test_a_failed_pod_goes_by_its_uid_and_comes_again(world: World) -> None:
    await started(world, workers=1, restart="OnFailure")
    world.report("Failed", "x-worker-0")
    failed = world.caches.pods.get("ns", "x-worker-0")
    await world.reconcile()
    await world.reconcile()
    assert failed is not None
    (deletion,) = [request for request in world.api.requests if request.verb == "delete"]
    assert deletion.body["preconditions"] == {"uid": failed.uid}
    assert world.conditions == {"Created": "PyTorchJobCreated", "Restarting": "PyTorchJobRestarting"}
    world.refresh()
    await world.reconcile()
    assert sorted(world.pods) == ["x-master-0", "x-worker-0"]


async def test_a_pod_that_another_replaced_meanwhile_is_not_deleted(world: World) -> None:
    await started(world, workers=1, restart="OnFailure")
    world.report("Failed", "x-worker-0")
    body = world.api.remove(PODS, "x-worker-0", "ns")
    meta = {**body["metadata"], "uid": "uid-of-the-next"}
    world.api.put(PODS, {**body, "metadata": meta, "status": {"phase": "Running"}})
    await world.reconcile()
    await world.reconcile()
    assert world.api.objects[PODS][("ns", "x-worker-0")]["metadata"]["uid"] == "uid-of-the-next"


async def test_a_job_that_has_ended_is_left_alone(world: World) -> None:
    await started(world)
    world.report("Succeeded")
    await world.reconcile()
    world.api.requests.clear()
    vanished = world.api.objects[SERVICES].popitem()
    assert await world.reconcile() is None
    assert (world.api.requests, vanished[0]) == ([], ("ns", "x"))


NO_ROOM = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}]}


async def test_a_pods_trouble_is_told_once_and_shown_as_long_as_it_lasts(world: World) -> None:
    world.submit(make_job(workers=3))
    await world.reconcile()
    world.report("Pending", "x-worker-0", **NO_ROOM)
    for _ in range(3):
        await world.reconcile()
        world.wait(2)
    assert (world.events, world.conditions["Waiting"]) == (["SuccessfulCreatePod", "Unschedulable"], "Unschedulable")
    world.report("Pending", "x-worker-0")
    await world.reconcile()
    world.wait(2)
    await world.reconcile()
    assert "Waiting" not in world.conditions


async def test_a_pods_trouble_is_told_also_while_the_server_refuses_the_others(world: World) -> None:
    world.submit(make_job(workers=3))
    world.refuse_pods(quota, after=2)
    with pytest.raises(RequestRefused):
        await world.reconcile()
    world.report("Pending", **NO_ROOM)
    for _ in range(2):
        with pytest.raises(RequestRefused):
            await world.reconcile()
    assert world.events == ["FailedCreatePod", "Unschedulable"]


async def test_a_pod_that_is_taken_away_is_counted_once(world: World) -> None:
    await started(world)
    lost: list[tuple[str, tuple[LossCause, ...]]] = []
    world.reconciler.lost = lambda namespace, causes: lost.append((namespace, causes)) if causes else None
    pod = world.api.objects[PODS][("ns", "x-worker-0")]
    world.api.put(PODS, {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": world.now.isoformat()}})
    world.refresh()
    for _ in range(2):
        await world.reconcile()
    assert lost == [("ns", (LossCause.DELETED,))]
