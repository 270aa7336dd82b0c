"""What the coordinator is told after a look at a job, and what its reports do to the job."""

from typing import Any

import pytest

from pytorchjob_operator.control.rounds import NoRounds, tell
from pytorchjob_operator.model import ConditionType, JobStatus
from pytorchjob_operator.observed import CoordinatorAt, Options, Pod, PodPhase
from pytorchjob_operator.report import Ended, Report
from pytorchjob_operator.rounds.state import Policy, Seat
from tests.control.world import World
from tests.factories import JOB_UID, condition, make_job, pods

LED = Options(coordinator=CoordinatorAt("here:1", b"k" * 32))
RUN, OVER = PodPhase.RUNNING, PodPhase.SUCCEEDED
FAILED = JobStatus(conditions=(condition(ConditionType.FAILED),))
SUCCEEDED = JobStatus(conditions=(condition(ConditionType.SUCCEEDED),))


class Told(NoRounds):
    """Notes what it is told, and reports what the test says."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.seats: dict[int, Seat] = {}
        self.says: Report | None = None

    def report(self, uid: str) -> Report | None:
        return self.says

    def expect(self, uid: str, policy: Policy, seats: dict[int, Seat]) -> None:
        self.words.append(f"expect {policy.least}")
        self.seats = seats

    def conclude(self, uid: str, *, failed: bool) -> None:
        self.words.append("failed" if failed else "succeeded")

    def forget(self, uid: str) -> None:
        self.words.append("forget")


@pytest.mark.parametrize(
    ("job", "options", "seen", "expected"),
    [
        pytest.param({}, LED, pods(RUN, RUN), "expect 2", id="a job whose agents meet here"),
        pytest.param({}, LED, (), "expect 2", id="before it has pods"),
        pytest.param({}, Options(), pods(RUN, RUN), "forget", id="no coordinator for its pods"),
        pytest.param({"elasticPolicy": {"rdzvBackend": "c10d"}}, LED, pods(RUN, RUN), "forget", id="its own backend"),
        pytest.param({"runPolicy": {"suspend": True}}, LED, pods(RUN, RUN), "forget", id="suspended"),
        pytest.param(
            {"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, LED, pods(RUN, RUN), "forget", id="going"
        ),
        pytest.param(
            {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}, LED, (), "forget", id="somebody else's"
        ),
        pytest.param({"status": FAILED}, LED, pods(RUN, OVER), "failed", id="failed, and a pod runs on"),
        pytest.param({"status": SUCCEEDED}, LED, pods(RUN, OVER), "succeeded", id="succeeded, and a pod runs on"),
        pytest.param({"status": SUCCEEDED}, LED, pods(OVER, OVER), "forget", id="ended, and so have its pods"),
    ],
)
def test_what_is_told(job: dict[str, Any], options: Options, seen: tuple[Pod, ...], expected: str) -> None:
    told = Told()
    tell(told, make_job(**job), options, seen)
    assert told.words == [expected]


@pytest.fixture
def told(world: World) -> Told:
    one = Told()
    world.caches.options = LED
    world.reconciler.rounds = one
    return one


async def running(world: World) -> None:
    world.submit(make_job())
    await world.reconcile()
    world.report("Running")
    await world.reconcile()


async def test_each_look_tells_which_pods_there_are(world: World, told: Told) -> None:
    await running(world)
    assert [seat.pod for _, seat in sorted(told.seats.items())] == ["x-master-0", "x-worker-0"]


async def test_a_round_is_one_write_after_a_moment_and_then_nothing(world: World, told: Told) -> None:
    await running(world)
    world.look()
    told.says = Report(round="1.1", running=True, members=2, world=2)
    world.api.requests.clear()
    assert await world.reconcile() == 5.0
    world.wait(5)
    for _ in range(2):
        await world.reconcile()
        world.look()
    assert world.asked() == {("patch", "pytorchjobs/status"): 1}
    assert world.job.status.elastic is not None
    assert world.job.status.elastic.round == "1.1"


async def test_a_verdict_fails_the_job_and_its_agents_are_told_to_stop(world: World, told: Told) -> None:
    await running(world)
    told.says = Report(round="1.1", members=2, ended=Ended("RestartsUsedUp", "rank 0 fell", 1))
    await world.reconcile()
    failed = world.job.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.message, world.events[-1]) == ("rank 0 fell", "PyTorchJobFailed")
    await world.reconcile()
    assert told.words[-1] == "failed"


async def test_a_job_that_is_gone_is_forgotten(world: World, told: Told) -> None:
    await running(world)
    world.caches.jobs.forget(JOB_UID)
    await world.reconcile()
    assert told.words[-1] == "forget"
