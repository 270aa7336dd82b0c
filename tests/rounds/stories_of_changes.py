"""Stories of members that come, go, or agree by themselves; see `stories`."""

from collections.abc import Callable

from pytorchjob_agent.contract.messages import Draining, Heartbeat, Join, Resumed, RoundId
from tests.rounds.story import expected
from tests.rounds.transcript import Recorded, round_of_two

FIRST, AGREED = RoundId(1, 1), RoundId(1, 1, 1)


def drain() -> Recorded:
    job = round_of_two(min_members=1)
    job.says(0, Heartbeat(cooperative=True))
    job.says(1, Draining(20, "preempted"))
    job.passes(1)
    job.says(0, Draining(5, ""))
    job.hello(1, round=FIRST, rank=1, size=2)
    job.passes(1)
    job.says(0, Heartbeat(cooperative=True, answered=1))
    job.says(1, Heartbeat(answered=1))
    job.joins(0)
    job.says(1, Draining(0, "SIGTERM"))
    return job


def drain_late() -> Recorded:
    job = round_of_two(min_members=1)
    job.says(0, Heartbeat(cooperative=True))
    job.says(1, Draining(2, "SIGTERM"))
    job.passes(2)
    return job


def drain_of_workers_that_do_not_save() -> Recorded:
    job = round_of_two(min_members=1)
    job.says(1, Draining(20, ""))
    return job


def drain_without_time() -> Recorded:
    job = round_of_two(min_members=1)
    job.says(0, Heartbeat(cooperative=True))
    job.says(1, Draining(0, ""))
    return job


def drain_within_a_second() -> Recorded:
    job = round_of_two(min_members=1)
    job.says(0, Heartbeat(cooperative=True))
    job.says(1, Draining(1, ""))
    return job


def container_restarts() -> Recorded:
    job = Recorded(3)
    job.waits(0, 1, 2)
    job.clear()
    job.hello(0)
    job.breaks(1)
    job.hello(1, incarnation="second")
    job.says(2, Join(20002, FIRST, caused=True))
    return job


def stalled_after_a_round() -> Recorded:
    job = round_of_two(join_timeout=20.0)
    job.breaks(1)
    job.passes(3, silent=[1])
    job.hello(0)
    job.passes(20, silent=[1])
    job.hello(0)
    job.breaks(0)
    job.hello(0, incarnation="second", round=FIRST, rank=0, size=2)
    job.hello(0, incarnation="second")
    job.breaks(0)
    job.hello(0, incarnation="third")
    job.hello(1, last_round=RoundId(1, 2), rank=1, size=2)
    job.says(1, Join(20001, RoundId(1, 2)))
    return job


def growth() -> Recorded:
    job = Recorded(4, min_members=1, max_members=3)
    job.waits(0)
    job.passes(30, cooperative=True)
    job.clear()
    job.waits(1)
    job.passes(0.5)
    job.waits(2)
    job.passes(0.5)
    job.says(0, Heartbeat(answered=1))
    job.joins(0)
    job.waits(3)
    job.ends(0)
    job.hello(3)
    job.joins(3)
    return job


def agreement() -> Recorded:
    job = Recorded(3, max_members=2, min_members=2)
    job.waits(0, 1, 2)
    job.passes(2, step=5)
    job.clear()
    job.says(0, Resumed(AGREED, 1, "a worker failed"))
    job.says(1, Resumed(AGREED, 1, "a worker failed"))
    job.says(1, Resumed(FIRST, 1, "too late"))
    job.says(0, Resumed(AGREED, 1, "again"))
    job.says(2, Resumed(AGREED, 1, "a spare"))
    return job


def agreement_without_one() -> Recorded:
    job = round_of_two()
    job.says(1, Resumed(AGREED, 1, "a worker failed"))
    job.says(0, Join(20000, FIRST))
    job.says(1, Join(20001, AGREED))
    job.says(0, Join(20000, FIRST))
    job.says(0, Join(20000, AGREED))
    return job


def stalled_after_a_failure() -> Recorded:
    job = round_of_two(join_timeout=12.0)
    job.fails(0)
    job.joins(0)
    job.passes(12)
    return job


def leaving_member_that_goes() -> Recorded:
    job = round_of_two(min_members=1)
    job.goes(1)
    job.breaks(1)
    return job


def member_that_leaves_before_the_first_round() -> Recorded:
    job = Recorded(4)
    job.waits(0)
    job.hello(1)
    job.goes(1)
    job.hello(2)
    job.breaks(2)
    job.passes(5, silent=[2])
    return job


def job_without_other_pods() -> Recorded:
    job = Recorded(1, min_members=2)
    job.waits(0)
    job.passes(5)
    return job


def pause_and_the_end_of_a_newer_round() -> Recorded:
    job = round_of_two()
    for error in "abcde":
        job.fails(0, error)
        job.joins(0, 1)
        job.passes(16)
    job.fails(0, "f")
    job.joins(0, 1)
    job.clear()
    job.passes(6)
    job.hello(1, last_round=RoundId(1, 9), rank=1, size=2)
    return job


def pod_that_was_replaced_while_its_agent_runs() -> Recorded:
    job = Recorded(3, min_members=2, rejoin_timeout=30.0)
    job.waits(0, 1, 2)
    job.expect({**job.pods, 2: expected(2, "uid-new")})
    job.clear()
    job.fails(0)
    job.joins(0, 1)
    job.passes(11)
    return job


STORIES_OF_CHANGES: tuple[Callable[[], Recorded], ...] = (
    drain,
    drain_late,
    drain_of_workers_that_do_not_save,
    drain_without_time,
    drain_within_a_second,
    container_restarts,
    stalled_after_a_round,
    stalled_after_a_failure,
    leaving_member_that_goes,
    member_that_leaves_before_the_first_round,
    job_without_other_pods,
    pause_and_the_end_of_a_newer_round,
    pod_that_was_replaced_while_its_agent_runs,
    growth,
    agreement,
    agreement_without_one,
)
