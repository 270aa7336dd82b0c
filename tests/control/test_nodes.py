"""Pods on dead nodes as requests: nodes are read on demand, few times, and never cost a pod its life by mistake."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from pytorchjob_operator.control.nodes import FRESH, Nodes
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from pytorchjob_operator.observed import NodeHealth
from tests.control.world import PODS, World, deletes_pod
from tests.factories import NOW, make_job
from tests.fakes.apiserver import FakeApi, Request, failure

NODES = "api/v1/nodes"
LOST = "x-worker-0"
DEAD = {"type": "Ready", "status": "Unknown", "lastTransitionTime": (NOW - timedelta(seconds=500)).isoformat()}
WELL = {"type": "Ready", "status": "True"}


def put_node(api: FakeApi, *conditions: dict[str, str], name: str = "n") -> None:
    """A node, which has no namespace."""
    api.put(NODES, {"metadata": {"name": name, "namespace": ""}, "status": {"conditions": conditions}})


async def stuck(world: World, finalizers: tuple[str, ...] = ()) -> None:
    """A job whose status speaks of a worker that should have been gone 100 s ago, on node n."""
    world.submit(make_job(restart="OnFailure"))
    await world.reconcile()
    world.report("Running")
    pod = world.api.objects[PODS][("ns", LOST)]
    gone_by = (NOW - timedelta(seconds=100)).isoformat()
    goes = {"deletionTimestamp": gone_by, "deletionGracePeriodSeconds": 30, "finalizers": list(finalizers)}
    world.api.put(PODS, {**pod, "metadata": {**pod["metadata"], **goes}, "spec": {**pod["spec"], "nodeName": "n"}})
    world.refresh()
    await world.reconcile()
    world.wait(FRESH.total_seconds())
    world.api.requests.clear()


async def test_a_pod_on_a_dead_node_goes_by_force_and_comes_again(world: World) -> None:
    put_node(world.api, DEAD)
    await stuck(world)
    uid = world.api.objects[PODS][("ns", LOST)]["metadata"]["uid"]
    assert await world.reconcile() is None
    (deletion,) = [request for request in world.api.requests if request.verb == "delete"]
    assert (deletion.body["preconditions"], deletion.body["gracePeriodSeconds"]) == ({"uid": uid}, 0)
    assert world.events[-1] == "ForceDeletedPod"
    await world.reconcile()
    assert sorted(world.pods) == ["x-master-0", LOST]
    assert world.api.objects[PODS][("ns", LOST)]["metadata"]["uid"] != uid
    assert world.asked()["delete", "pods"] == 1


@pytest.mark.parametrize("conditions", [[WELL], []], ids=["a node that is well", "a node without conditions"])
async def test_a_pod_stays_on(world: World, conditions: list[dict[str, str]]) -> None:
    put_node(world.api, *conditions)
    await stuck(world)
    assert await world.reconcile() == 30.0
    assert [(request.verb, request.path) for request in world.api.requests] == [("get", f"/{NODES}/n")]


async def test_a_node_that_does_not_exist_is_dead(world: World) -> None:
    await stuck(world)
    await world.reconcile()
    assert world.asked()["delete", "pods"] == 1


async def test_the_look_that_follows_does_not_ask_for_the_node_again(world: World) -> None:
    put_node(world.api, WELL)
    await stuck(world)
    for _ in range(3):
        await world.reconcile()
    assert len(world.api.requests) == 1


async def test_a_pod_that_a_finalizer_holds_is_deleted_by_force_once(world: World) -> None:
    await stuck(world, finalizers=("example.com/keep",))
    world.api.failing = lambda request: held(world) if deletes_pod(request) else None
    for _ in range(3):
        await world.reconcile()
    assert world.asked()["delete", "pods"] == 1
    assert world.events.count("ForceDeletedPod") == 1


def held(world: World) -> web.Response:
    """The pod stays for its finalizer; nothing waits for the kubelet any more."""
    pod = world.api.objects[PODS][("ns", LOST)]
    return web.json_response(
        world.api.put(PODS, {**pod, "metadata": {**pod["metadata"], "deletionGracePeriodSeconds": 0}})
    )


def forbidden(request: Request) -> web.Response | None:
    return failure(403, "Forbidden", 'nodes "n" is forbidden') if request.path.endswith("/nodes/n") else None


def broken(request: Request) -> web.Response | None:
    return failure(500, "InternalError", "etcd is away") if request.path.endswith("/nodes/n") else None


@pytest.mark.parametrize(
    ("fault", "message", "count"),
    [
        pytest.param(forbidden, "allow its service account to get nodes", 1, id="forbidden: logged once, with the fix"),
        pytest.param(broken, "node n cannot be read", 3, id="broken: logged each time"),
    ],
)
async def test_a_node_that_cannot_be_read_costs_no_pod_its_life(
    world: World, caplog: pytest.LogCaptureFixture, fault: Callable[[Request], Any], message: str, count: int
) -> None:
    await stuck(world)
    world.api.failing = fault
    with caplog.at_level(logging.WARNING, "pytorchjob_operator.control.nodes"):
        for _ in range(3):
            assert await world.reconcile() == 30.0
            world.wait(30)
    assert [message in record.message for record in caplog.records] == [True] * count
    assert world.asked()["delete", "pods"] == 0


async def test_an_answer_is_good_for_a_few_seconds(world: World) -> None:
    async with ApiClient(ApiEndpoint(world.api.url), "test/1") as client:
        nodes = Nodes(client)
        await nodes.read(["a", "b"], NOW)
    assert {name: state.health for name, state in nodes.known(NOW).items()} == dict.fromkeys("ab", NodeHealth.GONE)
    assert nodes.known(NOW + FRESH) == {}
