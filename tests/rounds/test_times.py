"""The moments that decide: deadlines, limits, ages, and the sleep of the coordinator itself."""

import pytest

from pytorchjob_agent.contract.messages import LEASE_SECONDS, Heartbeat, Resumed, RoundId
from pytorchjob_operator.rounds.state import Tick
from tests.rounds.story import STEP, Job, pause_before_restart, running, stopped


def seconds_until_restart(job: Job, limit: float = 100.0) -> float:
    """How long the round goes on while its members send heartbeats and save nothing."""
    start = job.now
    while job.runs and job.now < start + limit:
        job.passes(1, cooperative=True)
    return job.now - start


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(20.0, None, 20.0, id="as long as the pod has left"),
        pytest.param(300.0, None, 60.0, id="a minute at most"),
        pytest.param(20.0, 5.0, 5.0, id="a second pod that has less time left brings the restart forward"),
        pytest.param(5.0, 20.0, 5.0, id="a second pod that has more time left does not put it off"),
    ],
)
def test_workers_have_until_the_first_pod_must_be_gone_to_save(
    first: float, second: float | None, expected: float
) -> None:
    job = running(3, min_members=1)
    job.passes(1, cooperative=True)
    job.goes(1, first)
    assert job.heard(0).seconds == min(first, expected if second is None else first)
    if second is not None:
        job.goes(2, second)
    assert seconds_until_restart(job) == expected


def test_a_silent_member_is_lost_when_its_lease_ends_and_not_before() -> None:
    job = running(3, min_members=2)
    job.passes(LEASE_SECONDS - STEP, silent=[1])
    assert job.runs
    job.passes(STEP, silent=[1])
    assert not job.runs
    assert job.links[1] in job.closed


@pytest.mark.parametrize(
    ("reports", "rank"),
    [
        pytest.param([(0, 0.5), (1, 2.0)], 1, id="the second report is of the earlier failure"),
        pytest.param([(0, 3.0), (1, 0.5)], 0, id="the first report is"),
        pytest.param([(1, 500.0), (0, 60.0)], 0, id="an age above a minute counts as a minute"),
        pytest.param([(0, -5.0), (1, 0.0)], 0, id="a negative age counts as none"),
    ],
)
def test_the_cause_is_the_worker_that_failed_first_whoever_reports_first(
    reports: list[tuple[int, float]], rank: int
) -> None:
    job = running(2)
    for index, age in reports:
        job.fails(index, f"ValueError of {index}", age=age)
    stopped(job, 0, 1)
    words = f"rank {rank} (pod-{rank}) exited with code 1: ValueError of {rank}; 1 other rank failed too"
    assert f"WorkerFailed: {words}" in job.events


def test_the_pause_doubles_up_to_a_minute() -> None:
    job, pauses = running(2), []
    for letter in "abcdefghi":
        job.passes(2)
        job.fails(0, f"Error{letter}")
        stopped(job, 0, 1)
        pauses.append(pause_before_restart(job, 100))
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_members_that_agree_on_a_round_do_their_part_again() -> None:
    job = running(2)
    job.ends(0)
    for index in (0, 1):
        job.says(index, Resumed(RoundId(1, 1, 1), 1, "a worker failed"))
    job.ends(1)
    assert job.end is None, "member 0 succeeded in the round before"
    job.ends(0)
    assert job.end is not None


def broken(job: Job) -> None:
    job.breaks(1)


def silent(job: Job) -> None:
    job.passes(LEASE_SECONDS - 1, silent=[1])


def cut_off(job: Job) -> None:
    job.breaks(1)
    job.passes(5, silent=[1], heard=(0, 1, 2), heard_ages=(3, 10, 3))


@pytest.mark.parametrize(
    ("before", "left"),
    [
        pytest.param(lambda job: None, 5.0, id="all members were well"),
        pytest.param(broken, 2.5, id="a connection had just broken"),
        pytest.param(silent, 1.0, id="a member had been silent for four seconds"),
    ],
)
def test_a_coordinator_that_slept_lets_members_have_the_time_that_they_had_left(before: object, left: float) -> None:
    job = running(3, min_members=2)
    before(job)  # type: ignore[operator]
    job.now += 30
    job.says(0, Heartbeat())
    job.feed(Tick())
    assert job.runs, "the messages of the others are still on their way"
    job.passes(left - STEP, silent=[1])
    assert job.runs
    job.passes(STEP, silent=[1])
    assert not job.runs


def test_a_coordinator_that_slept_still_trusts_what_peers_reported_before() -> None:
    job = running(3, min_members=2)
    cut_off(job)
    job.now += 30
    job.says(0, Heartbeat())
    job.feed(Tick())
    assert job.runs
