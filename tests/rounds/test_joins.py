"""A member of the running round or a new member joins: it has no workers and waits for a round."""

import pytest

from pytorchjob_agent.contract.messages import Join, RoundId
from pytorchjob_operator.rounds.phases import LastWorkers, Origin, Rendezvous
from tests.rounds.story import Job, running


@pytest.mark.parametrize(
    ("id_", "caused"),
    [
        pytest.param(RoundId(1, 1), False, id="its workers have stopped"),
        pytest.param(RoundId(1, 1), True, id="it knows another cause"),
    ],
)
def test_a_member_whose_workers_have_stopped_ends_the_round(id_: RoundId, caused: bool) -> None:
    job = running(2)
    assert job.round == id_
    job.says(0, Join(20000, id_, caused=caused))
    phase = job.state.phase
    assert isinstance(phase, Rendezvous)
    assert (phase.reason, phase.workers) == ("pod-0 has stopped its workers", LastWorkers.STOPPED)
    assert phase.origin is (Origin.MAYBE_LOSS if caused else Origin.FAILURE)
    assert (job.heard(1).kind, job.heard(1).reason) == ("restart", "pod-0 has stopped its workers")
    job.joins(1)
    assert job.round == RoundId(1, 2)


def test_an_agent_that_was_in_no_round_has_replaced_the_member_so_what_fails_after_it_does_not_count() -> None:
    job = running(2)
    job.says(0, Join(20000))
    phase = job.state.phase
    assert isinstance(phase, Rendezvous)
    assert (phase.workers, phase.origin) == (LastWorkers.STOPPED, Origin.OTHER)


def test_a_member_that_is_done_waits_beside_the_round() -> None:
    job = running(2)
    job.ends(0)
    job.says(0, Join(20000, RoundId(1, 1)))
    assert (job.runs, job.round) == (True, RoundId(1, 1))
    assert job.heard(0).kind == "hold"


def test_the_message_names_three_new_members() -> None:
    job = Job(6, min_members=1)
    job.waits(0)
    job.passes(30)
    job.waits(1, 2, 3, 4, 5)
    job.passes(2, silent=[1, 2, 3, 4, 5])
    assert job.heard(0).reason == "pod-1, pod-2, pod-3 joined"


def test_a_round_that_is_as_large_as_it_may_be_does_not_restart() -> None:
    job = Job(3, min_members=1, max_members=2)
    job.waits(0, 1)
    job.passes(30)
    job.waits(2)
    job.passes(10)
    assert (job.runs, job.round) == (True, RoundId(1, 1))
