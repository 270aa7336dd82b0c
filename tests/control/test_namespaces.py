"""The label of a job's namespace as requests: read for a job's first pods alone, and never guessed."""

import logging
from collections.abc import Callable

import pytest
from aiohttp import web

from pytorchjob_operator.control.namespaces import FRESH
from pytorchjob_operator.coordinator_update import CoordinatorUpdate, Forget
from pytorchjob_operator.errors import Unavailable
from pytorchjob_operator.observed import CoordinatorAccess, Options
from tests.control.world import PODS, World
from tests.factories import full_job, make_template
from tests.fakes.apiserver import Request, failure

TORCHRUN = make_template(containers=[{"name": "pytorch", "image": "train:1", "command": ["torchrun", "train.py"]}])
NAMESPACES = "api/v1/namespaces"


def start(world: World, label: str = "Inject") -> None:
    """A new job without a word about the agent, in a namespace with this label."""
    world.caches.options = Options(coordinator=CoordinatorAccess("coordinator.ops.svc:29600"), agent_image="agent:1")
    labels = {"training.kubeflow.org/agent": label} if label else {}
    world.api.put(NAMESPACES, {"metadata": {"name": "ns", "namespace": "", "labels": labels}})
    world.submit(full_job(template=TORCHRUN))


def injected(world: World) -> set[bool]:
    return {bool(pod["spec"].get("initContainers")) for pod in world.api.objects.get(PODS, {}).values()}


@pytest.mark.parametrize(("label", "expected"), [("Inject", True), ("Off", False), ("", False)])
async def test_the_first_pods_are_those_of_the_namespaces_label(world: World, label: str, expected: bool) -> None:
    start(world, label)
    await world.reconcile()
    assert injected(world) == {expected}


async def test_a_job_with_pods_asks_no_more(world: World) -> None:
    start(world)
    await world.reconcile()
    world.report("Running")
    for _ in range(3):
        world.wait(2 * FRESH.total_seconds())
        await world.reconcile()
    assert sum(request.path.endswith("/namespaces/ns") for request in world.api.requests) == 1


def fails(status: int) -> Callable[[Request], web.Response | None]:
    return lambda request: failure(status, "X", "no") if request.path.endswith("/namespaces/ns") else None


async def test_without_the_right_no_label_counts_and_the_log_says_so_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    start(world)
    world.api.failing = fails(403)
    with caplog.at_level(logging.WARNING, "pytorchjob_operator.control.namespaces"):
        await world.reconcile()
    assert injected(world) == {False}
    assert len(caplog.records) == 1


async def test_a_slow_answer_counts_as_a_quick_one(world: World) -> None:
    start(world)

    def slow(request: Request) -> None:
        if request.path.endswith("/namespaces/ns"):
            world.wait(4 * FRESH.total_seconds())

    world.api.failing = slow
    await world.reconcile()
    assert injected(world) == {True}


async def test_no_pod_is_created_before_the_namespace_answers(world: World) -> None:
    start(world)
    world.api.failing = fails(500)
    with pytest.raises(Unavailable):
        await world.reconcile()
    assert world.pods == []
    world.api.failing = lambda request: None
    await world.reconcile()
    assert injected(world) == {True}


class Told:
    """A coordinator that writes down what it is told."""

    def __init__(self) -> None:
        self.updates: list[CoordinatorUpdate] = []

    def report(self, uid: str) -> None:
        return None

    def apply(self, uid: str, update: CoordinatorUpdate) -> None:
        self.updates.append(update)


async def test_the_coordinator_hears_nothing_of_a_plan_that_does_not_know_the_namespace(world: World) -> None:
    """It would forget the members of a job whose pods have just gone."""
    start(world)
    world.reconciler.coordinator = told = Told()
    await world.reconcile()
    assert told.updates
    assert not any(isinstance(update, Forget) for update in told.updates)
