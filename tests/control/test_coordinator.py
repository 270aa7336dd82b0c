"""What the coordinator hears after each pass over a job, and what its reports do to the job."""

import pytest

from pytorchjob_operator.coordinator_report import PhaseName, Report, TrainingEnd
from pytorchjob_operator.coordinator_update import CoordinatorUpdate, Finish, Forget, Sync
from pytorchjob_operator.errors import RequestRefused
from pytorchjob_operator.model import ConditionType
from pytorchjob_operator.observed import CoordinatorAccess, Options
from tests.control.world import World, quota
from tests.factories import JOB_UID, make_job

LED = Options(coordinator=CoordinatorAccess("here:1"))


class FakeCoordinator:
    """Records the updates, and reports what the test sets."""

    def __init__(self) -> None:
        self.updates: list[CoordinatorUpdate] = []
        self.answer: Report | None = None

    def report(self, uid: str) -> Report | None:
        return self.answer if uid == JOB_UID else None

    def apply(self, uid: str, update: CoordinatorUpdate) -> None:
        assert uid == JOB_UID
        self.updates.append(update)


@pytest.fixture
def coordinator(world: World) -> FakeCoordinator:
    fake = FakeCoordinator()
    world.caches.options = LED
    world.reconciler.coordinator = fake
    return fake


async def running(world: World) -> None:
    world.submit(make_job())
    await world.reconcile()
    world.report("Running")
    await world.reconcile()


async def test_each_pass_updates_the_coordinator_also_when_nothing_is_written(
    world: World, coordinator: FakeCoordinator
) -> None:
    await running(world)
    coordinator.updates.clear()
    world.api.requests.clear()
    await world.reconcile()
    assert world.api.requests == []
    (update,) = coordinator.updates
    assert isinstance(update, Sync)
    assert [pod.pod for _, pod in sorted(update.pods.items())] == ["x-master-0", "x-worker-0"]


async def test_a_follower_updates_no_coordinator(world: World, coordinator: FakeCoordinator) -> None:
    world.submit(make_job())
    world.fence.holds = lambda: False
    await world.reconcile()
    assert coordinator.updates == []


async def test_a_pass_that_is_refused_updates_the_coordinator_too(world: World, coordinator: FakeCoordinator) -> None:
    world.submit(make_job())
    world.refuse_pods(quota)
    with pytest.raises(RequestRefused):
        await world.reconcile()
    assert {type(update) for update in coordinator.updates} == {Sync}


async def test_a_suspended_job_is_forgotten_at_once(world: World, coordinator: FakeCoordinator) -> None:
    await running(world)
    world.edit(suspend=True)
    await world.reconcile()
    assert coordinator.updates[-1] == Forget()


async def test_a_round_is_one_write_after_a_moment_and_then_nothing(world: World, coordinator: FakeCoordinator) -> None:
    await running(world)
    world.refresh()
    coordinator.answer = Report(round="1.1", phase=PhaseName.RUNNING, members=2, world=2)
    world.api.requests.clear()
    assert await world.reconcile() == 5.0
    world.wait(5)
    for _ in range(2):
        await world.reconcile()
        world.refresh()
    assert world.asked() == {("patch", "pytorchjobs/status"): 1}
    assert world.job.status.elastic is not None
    assert world.job.status.elastic.round == "1.1"


async def test_a_verdict_fails_the_job_and_its_agents_are_told_to_stop(
    world: World, coordinator: FakeCoordinator
) -> None:
    await running(world)
    coordinator.answer = Report(round="1.1", members=2, ended=TrainingEnd("RestartsUsedUp", "rank 0 fell", 1))
    await world.reconcile()
    failed = world.job.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.message, world.events[-1]) == ("rank 0 fell", "PyTorchJobFailed")
    await world.reconcile()
    assert coordinator.updates[-1] == Finish(failed=True)


async def test_a_job_that_is_gone_is_forgotten(world: World, coordinator: FakeCoordinator) -> None:
    await running(world)
    world.caches.jobs.forget(JOB_UID)
    await world.reconcile()
    assert coordinator.updates[-1] == Forget()
