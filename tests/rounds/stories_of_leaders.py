"""Stories of a leader that learns from the members what it does not know; see `stories`."""

from collections.abc import Callable

from pytorchjob_agent.contract.messages import Failed, Join, RoundId
from tests.rounds.story import expected
from tests.rounds.transcript import Recorded, new_leader, round_of_two

FIRST = RoundId(1, 1)


def adoption() -> Recorded:
    job = new_leader(4, min_members=1, max_members=3)
    job.waits(3)
    job.hello(0, round=FIRST, rank=0, size=3)
    job.hello(1, round=FIRST, rank=0, size=3)
    job.hello(1, round=FIRST, rank=1, size=3, done=True)
    job.hello(3, round=FIRST, rank=5, size=3)
    job.hello(2, round=RoundId(2, 5), rank=7, size=3)
    job.passes(10)
    job.joins(0)
    return job


def adoption_of_a_newer_round() -> Recorded:
    job = new_leader(3, min_members=1, max_members=2)
    for rank in (0, 1):
        job.hello(rank, round=RoundId(0, 1, 1), rank=rank, size=2)
    job.hello(2, round=RoundId(0, 2), rank=1, size=2)
    job.says(0, Join(20000, RoundId(0, 2)))
    job.hello(1, round=RoundId(0, 1, 1), rank=1, size=2)
    return job


def adoption_of_a_later_attempt() -> Recorded:
    job = new_leader(2)
    job.hello(0, round=FIRST, rank=0, size=2)
    job.hello(1, round=RoundId(1, 1, 1), rank=1, size=2)
    job.hello(0, round=RoundId(1, 1, 1), rank=0, size=2)
    return job


def adoption_of_a_later_attempt_of_another_size() -> Recorded:
    job = new_leader(3)
    job.hello(0, round=FIRST, rank=0, size=2)
    job.hello(1, round=RoundId(1, 1, 1), rank=1, size=3)
    return job


def adoption_of_a_later_attempt_with_another_rank() -> Recorded:
    job = new_leader(2)
    job.hello(0, round=FIRST, rank=0, size=2)
    job.hello(1, round=RoundId(1, 1, 1), rank=0, size=2)
    return job


def end_learned_again() -> Recorded:
    job = new_leader(3)
    job.hello(0, last_round=FIRST, rank=0, size=3)
    job.hello(1, last_round=FIRST, rank=0, size=3)
    job.hello(1, last_round=FIRST, rank=1, size=2)
    job.hello(1, last_round=FIRST, rank=3, size=3)
    job.hello(1, round=FIRST, rank=1, size=3)
    job.hello(0, last_round=FIRST, rank=2, size=3)
    job.hello(2, last_round=RoundId(1, 2), rank=2, size=3)
    return job


def member_of_a_former_pod() -> Recorded:
    job = new_leader(2)
    job.hello(0, round=FIRST, rank=0, size=2)
    job.hello(0, pod_uid="uid-old", round=RoundId(1, 0), rank=0, size=2)
    job.hello(0, pod_uid="uid-old", round=FIRST, rank=0, size=2)
    return job


def end_reported_by_others() -> Recorded:
    job = Recorded(3, min_members=1, max_members=2)
    job.waits(0, 1, 2)
    job.ends(0)
    job.clear()
    job.hello(2, last_round=FIRST, rank=1, size=2)
    job.hello(0, last_round=FIRST, rank=0, size=2)
    job.breaks(1)
    job.passes(3, silent=[1])
    job.hello(2, last_round=FIRST, rank=1, size=2)
    job.hello(0, last_round=FIRST, rank=0, size=2)
    return job


def end_reported_after_a_timeout() -> Recorded:
    job = round_of_two(join_timeout=20.0)
    job.breaks(1)
    job.passes(24, silent=[1])
    job.clear()
    job.hello(0, round=FIRST, rank=0, size=2)
    job.hello(0, last_round=FIRST, rank=0, size=2)
    return job


def learned_end() -> Recorded:
    job = new_leader(3)
    job.hello(0, last_round=RoundId(0, 7), rank=0, size=3, restarts=4)
    job.says(0, Failed(RoundId(0, 7), 0, 0, 1, "ValueError: no", errors=("ValueError",)))
    job.says(0, Join(20000, RoundId(0, 7)))
    job.hello(1, round=RoundId(0, 7), rank=1, size=3)
    job.says(1, Join(20001, RoundId(0, 7)))
    job.hello(2, last_round=RoundId(0, 6), rank=2, size=3)
    job.joins(2)
    return job


def end_learned_while_running() -> Recorded:
    job = new_leader(2)
    job.hello(0, round=FIRST, rank=0, size=2)
    job.hello(1, last_round=FIRST, rank=1, size=2)
    job.says(1, Join(20001, FIRST))
    job.says(0, Join(20000, FIRST))
    return job


def newer_end_learned_while_running() -> Recorded:
    job = new_leader(2)
    job.hello(0, round=FIRST, rank=0, size=2)
    job.hello(1, last_round=RoundId(1, 2), rank=1, size=2)
    job.says(1, Join(20001, RoundId(1, 2)))
    job.says(0, Join(20000, FIRST))
    return job


def success_before_this_leader() -> Recorded:
    job = new_leader(2)
    job.expect({**job.pods, 0: expected(0, succeeded=True)})
    job.hello(1, last_round=FIRST, rank=1, size=2)
    return job


STORIES_OF_LEADERS: tuple[Callable[[], Recorded], ...] = (
    adoption,
    adoption_of_a_newer_round,
    adoption_of_a_later_attempt,
    adoption_of_a_later_attempt_of_another_size,
    adoption_of_a_later_attempt_with_another_rank,
    end_learned_again,
    end_reported_by_others,
    end_reported_after_a_timeout,
    member_of_a_former_pod,
    learned_end,
    end_learned_while_running,
    newer_end_learned_while_running,
    success_before_this_leader,
)
