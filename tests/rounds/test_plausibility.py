"""Counters that no job can have reached wedge none: there is always a next round, and a next request."""

import pytest

from pytorchjob_agent.contract.fields import MAX_COUNT
from pytorchjob_agent.contract.messages import Failed, Heartbeat, Join, Resumed, RoundId
from pytorchjob_operator.rounds.failures import MOST_FAILURES, WHOLE_FAILURES
from pytorchjob_operator.rounds.phases import Rendezvous
from pytorchjob_operator.rounds.plausibility import MOST_RESTARTS, TERMS_AHEAD
from tests.rounds.story import Job, running, stopped

HIGHEST = RoundId(1, MAX_COUNT, MAX_COUNT)


def test_after_the_highest_number_of_a_term_the_job_trains_on() -> None:
    job = Job(2)
    job.hello(0)
    job.says(0, Join(20000, HIGHEST))
    job.waits(1)
    assert job.runs
    assert job.round == RoundId(2, 1)
    for index in range(2):
        job.assigned(index).to_line()
    job.fails(1)
    stopped(job, 0, 1)
    assert job.round == RoundId(2, 2)


def test_a_running_round_with_the_highest_number_is_followed_by_another_one() -> None:
    job = Job(2)
    for index in range(2):
        job.hello(index, round=HIGHEST, rank=index, size=2)
    assert job.round == HIGHEST
    job.fails(0)
    stopped(job, 0, 1)
    assert job.round == RoundId(2, 1)


@pytest.mark.parametrize("id_", [RoundId(2**53, 1), RoundId(2 + TERMS_AHEAD, 1)], ids=str)
def test_a_term_that_cannot_have_been_is_refused_and_changes_nothing(id_: RoundId) -> None:
    job = Job(2)
    refused = job.hello(0, round=id_, rank=0, size=2)
    assert refused.kind == "refused"
    assert refused.again
    assert f"round {id_} cannot have existed" in refused.message
    job.hello(0)
    assert job.says(0, Join(20000, id_)).kind == "refused"
    assert job.links[0] in job.closed
    assert job.state.finished_round is None
    job.waits(0, 1)
    assert job.round == RoundId(1, 1)


@pytest.mark.parametrize("id_", [RoundId(2**53 - 1, 2), RoundId(2 + TERMS_AHEAD, 1)], ids=str)
def test_a_last_round_that_cannot_have_been_is_refused_and_changes_nothing(id_: RoundId) -> None:
    job = Job(2)
    refused = job.hello(0, last_round=id_, rank=0, size=2)
    assert refused.kind == "refused"
    assert refused.again
    assert job.round is None
    job.waits(0, 1)
    assert job.round == RoundId(1, 1)


def test_a_round_that_a_member_knows_to_be_over_is_not_formed_again() -> None:
    job = Job(1)
    job.hello(0)
    job.says(0, Join(20000, RoundId(1, 1)))
    assert job.round == RoundId(1, 2)


def test_a_term_of_leaders_that_are_forgotten_is_believed() -> None:
    job = Job(1)
    job.hello(0)
    job.says(0, Join(20000, RoundId(1 + TERMS_AHEAD, 5)))
    assert job.round == RoundId(1 + TERMS_AHEAD, 6)


def test_an_answer_to_a_request_that_cannot_have_been_does_not_count() -> None:
    job = running(2)
    job.says(0, Heartbeat(cooperative=True, answered=2**53))
    assert job.state.requests == 0
    job.says(0, Heartbeat(cooperative=True, answered=41))
    job.goes(1)
    request = next(message for message in job.told[0] if message.kind == "checkpoint")
    assert request.number == 42


def test_the_highest_request_that_an_agent_can_count_is_believed() -> None:
    job = running(2)
    job.says(0, Heartbeat(answered=MAX_COUNT))
    assert job.state.requests == MAX_COUNT
    job.says(0, Heartbeat(answered=MAX_COUNT + 1))
    assert job.state.requests == MAX_COUNT


@pytest.mark.parametrize(
    ("reported", "known"),
    [(41, 41), (MOST_RESTARTS, MOST_RESTARTS), (MOST_RESTARTS + 1, 0), (2**31 - 1, 0), (2**53, 0)],
)
def test_restarts_that_cannot_have_been_do_not_count(reported: int, known: int) -> None:
    job = Job(1)
    job.hello(0, round=RoundId(1, 3), rank=0, size=1, restarts=reported)
    assert job.state.restarts == known
    job.says(0, Resumed(RoundId(1, 3, 1), reported))
    assert job.state.restarts == known


def test_a_pod_that_reports_failures_without_end_takes_little_memory() -> None:
    job = running(2)
    for rank in range(WHOLE_FAILURES + 10):
        job.says(0, Failed(RoundId(1, 1), rank, 0, 1, "m" * 4096, "t" * 10_000, also=(1, 2)))
    phase = job.state.phase
    assert isinstance(phase, Rendezvous)
    assert sum(bool(failure.traceback) for failure in phase.failures) == WHOLE_FAILURES
    assert len(phase.failures[-1].message) == 256
    assert phase.failures[-1].also == ()
    for rank in range(MOST_FAILURES + 10):
        job.says(0, Failed(RoundId(1, 1), rank, 0, 1, "m"))
    assert isinstance(job.state.phase, Rendezvous)
    assert len(job.state.phase.failures) == MOST_FAILURES
