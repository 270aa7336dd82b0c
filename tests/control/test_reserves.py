"""Reserve pods against an API server that refuses them: no problem of the job."""

import pytest

from pytorchjob_operator.control.pace import REFUSED
from pytorchjob_operator.errors import ApiError
from pytorchjob_operator.plan.reserves import END_SECONDS
from tests.control.world import EVENTS, PODS, World, quota
from tests.factories import make_job
from tests.fakes.apiserver import failure

RESERVES = ["x-worker-0-reserve", "x-worker-1-reserve"]
BROKEN = {"resources": [{"resourceID": "GPU-8", "health": "Unhealthy"}], "name": "nvidia.com/gpu"}
STATUS = {"containerStatuses": [{"name": "pytorch", "allocatedResourcesStatus": [BROKEN]}]}


async def threatened(world: World) -> None:
    """The pods of a job run, and the devices of both workers break."""
    world.submit(make_job(workers=2, agent={"reservePods": 2}))
    await world.reconcile()
    world.report("Running")
    await world.reconcile()
    world.report("Running", "x-worker-0", "x-worker-1", **STATUS)
    world.api.requests.clear()


def messages(world: World, reason: str) -> list[str]:
    return [event["message"] for event in world.api.objects.get(EVENTS, {}).values() if event["reason"] == reason]


async def test_a_reserve_costs_a_request_and_an_event(world: World) -> None:
    await threatened(world)
    await world.reconcile()
    assert [name for name in world.pods if name.endswith("-reserve")] == RESERVES
    assert len(messages(world, "ReservePodCreated")) == 2
    assert world.asked() == {("get", "pytorchjobs"): 1, ("create", "pods"): 2}
    assert await world.reconcile() is None


async def test_a_refused_reserve_is_an_event_and_no_condition(world: World) -> None:
    await threatened(world)
    before = world.conditions
    world.refuse_pods(quota, after=1)
    assert await world.reconcile() == REFUSED.total_seconds()
    assert [name for name in world.pods if name.endswith("-reserve")] == RESERVES[:1]
    [told] = messages(world, "ReservePodRefused")
    assert "exceeded quota" in told
    assert told.endswith("the job goes on without this reserve pod, the next attempt is in 5 minutes")
    assert len(messages(world, "ReservePodCreated")) == 1
    assert world.conditions == before


async def test_a_refused_reserve_is_not_tried_again_for_some_minutes(world: World) -> None:
    await threatened(world)
    world.refuse_pods(quota)
    await world.reconcile()
    world.api.requests.clear()
    world.wait(REFUSED.total_seconds() - 1)
    assert await world.reconcile() == 1
    assert world.asked() == {}
    world.heal()
    world.wait(1)
    await world.reconcile()
    assert [name for name in world.pods if name.endswith("-reserve")] == RESERVES


async def test_a_reserve_whose_creation_fails_does_not_hold_up_the_status(world: World) -> None:
    await threatened(world)
    world.edit(backoffLimit=3)
    world.refuse_pods(lambda: failure(500, "InternalError", "a webhook cannot be reached"))
    with pytest.raises(ApiError):
        await world.reconcile()
    assert world.job.status.observed_generation == 2


async def test_the_new_pod_of_a_lost_one_is_created_after_its_reserve_is_gone_and_near_it(world: World) -> None:
    await threatened(world)
    await world.reconcile()
    kept = world.api.objects[PODS][("ns", RESERVES[1])]
    world.api.put(PODS, {**kept, "spec": {**kept["spec"], "nodeName": "n2"}, "status": {"phase": "Running"}})
    del world.api.objects[PODS][("ns", "x-worker-1")]
    world.refresh()
    wait = await world.reconcile()
    assert wait is not None
    assert 0 < wait <= END_SECONDS + 1
    assert "x-worker-1" not in world.pods
    world.refresh()
    await world.reconcile()
    affinity = world.api.objects[PODS][("ns", "x-worker-1")]["spec"]["affinity"]["nodeAffinity"]
    [preferred] = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["preference"]["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]
    assert RESERVES[1] not in world.pods
