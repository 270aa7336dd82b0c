"""The last moment at which an input still counts, and members that come or go in a rare phase."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_agent.contract.messages import Heartbeat, Join, RoundId
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.rounds.decide import decide
from pytorchjob_operator.rounds.phases import LastWorkers, Phase, Rendezvous, Running, Stage, Stalled
from pytorchjob_operator.rounds.state import JobState, Tick
from pytorchjob_operator.rounds.values import Round
from tests.rounds.story import Job, another_leader, running

FIRST = RoundId(1, 1)


def ticked(job: Job, phase: Phase | None = None, index: int = 1, **member: object) -> JobState:
    """Return the state after a tick, from this phase and with these fields of one member."""
    state = job.state if phase is None else replace(job.state, phase=phase)
    members = {**state.members, index: replace(state.members[index], **member)}  # type: ignore[arg-type]
    return decide(replace(state, members=members), Tick(), job.now).state


def test_a_member_that_connects_again_may_have_finished_meanwhile() -> None:
    job = Job(2)
    job.hello(0)
    job.hello(0, done=True)
    assert job.state.members[0].done


def test_a_member_that_was_not_in_the_last_round_does_not_stop_it() -> None:
    job = Job(3)
    job.state = replace(job.state, phase=Stalled(job.now, "", Round(FIRST, (0, 1), job.now)))
    job.hello(2, last_round=FIRST, rank=0, size=2)
    phase = job.state.phase
    assert isinstance(phase, Stalled)
    assert phase.workers is LastWorkers.MAY_TRAIN


def test_a_terminating_member_that_closes_its_connection_has_left() -> None:
    job = running(3, min_members=2)
    job.goes(1)
    job.breaks(1)
    assert 1 not in job.state.members


def test_a_member_without_a_connection_does_not_wait() -> None:
    job = Job(2)
    job.waits(0)
    job.breaks(0)
    assert job.state.members[0].port is None


def test_members_of_which_none_is_heard_do_not_wait() -> None:
    job = running(2)
    job.fails(0)
    job.joins(0)
    assert job.state.members[0].port is not None
    job.passes(5.25, silent=[0, 1])
    assert {(member.connection, member.port) for member in job.state.members.values()} == {(None, None)}


@pytest.mark.parametrize(
    ("silent", "reported"),
    [
        pytest.param(2.0, False, id="2 s"),
        pytest.param(2.5, False, id="half of a lease"),
        pytest.param(2.75, True, id="more than half of a lease"),
    ],
)
def test_since_when_a_member_that_only_its_peers_hear_is_reported(silent: float, reported: bool) -> None:
    job = running(3, min_members=2)
    state = ticked(job, heard_at=job.now - silent, peer_heard_at=job.now)
    assert (TrainingReason.COORDINATOR_UNREACHABLE in state.problems) is reported


def test_peers_of_an_earlier_round_prove_nothing() -> None:
    job = Job(3, min_members=1, max_members=2)
    job.waits(0, 1, 2)
    state = ticked(job, index=2, connection=None, port=None, lost_at=job.now - 9.0, peer_heard_at=job.now)
    assert 2 not in state.members


def test_the_ranks_of_all_members_that_never_connect_are_named() -> None:
    job = another_leader(running(4))
    job.hello(0, round=FIRST, rank=0, size=4)
    job.passes(10)
    assert job.heard(0).reason == "node ranks 1, 2, 3 of round 1.1 did not reconnect"


def test_a_member_that_has_not_connected_in_time_is_silent_from_that_moment() -> None:
    job = another_leader(running(2))
    job.hello(0, round=FIRST, rank=0, size=2)
    job.passes(9.75)
    assert (job.runs, 1 in job.state.silent) == (True, False)
    job.passes(0.25)
    assert (job.runs, 1 in job.state.silent) == (False, True)


@pytest.mark.parametrize("seconds", [9.75, 10.0, 11.0])
def test_members_of_an_adopted_round_are_waited_for_in_their_time(seconds: float) -> None:
    job = Job(3, min_members=2)
    job.waits(0, 1)
    last = Round(FIRST, (0, None), job.now - seconds, adopted=True)
    state = ticked(job, Rendezvous(job.now - 8, "", last, stage=Stage.COLLECTING, workers=LastWorkers.STOPPED))
    assert isinstance(state.phase, Running) is (seconds >= 10.0)


def test_the_end_of_a_round_is_kept_with_the_step_that_it_reached() -> None:
    job = running(2, min_members=1)
    job.says(0, Heartbeat(step=7))
    job.goes(1)
    job.joins(0)
    assert [past.step for past in job.state.history] == [7]


def test_as_many_members_as_a_round_may_have_wait_for_no_other() -> None:
    job = Job(3, min_members=1, max_members=2)
    job.waits(0, 1, 2)
    job.breaks(2)
    for index in (0, 1):
        job.says(index, Join(20000 + index, FIRST))
    assert (job.runs, job.round) == (True, RoundId(1, 2))


@pytest.mark.parametrize(
    ("silent", "heard", "at"),
    [
        pytest.param(0.75, {"heard": (1,)}, None, id="the coordinator hears the peer itself"),
        pytest.param(1.0, {"heard": (1,)}, None, id="a peer is silent for just a heartbeat"),
        pytest.param(1.25, {"heard": (1,)}, 0.0, id="a peer is silent for longer, and was heard now"),
        pytest.param(1.25, {"heard": (1,), "heard_ages": (10,)}, -1.0, id="it was heard a second ago"),
        pytest.param(1.25, {"heard": (2, 9, 1)}, 0.0, id="behind ranks that the round does not have"),
        pytest.param(1.25, {"heard": (1,), "heard_in": RoundId(1, 1)}, 0.0, id="in this round"),
        pytest.param(1.25, {"heard": (1,), "heard_in": RoundId(1, 0)}, None, id="in an earlier round"),
        pytest.param(1.25, {"heard": (1,), "heard_in": RoundId(1, 1, 1)}, None, id="in a round that is not known yet"),
    ],
)
def test_when_a_peer_was_heard(silent: float, heard: dict[str, Any], at: float | None) -> None:
    job = running(2)
    job.state = replace(
        job.state, members={**job.state.members, 1: replace(job.state.members[1], heard_at=job.now - silent)}
    )
    job.says(0, Heartbeat(**{"heard_ages": (0, 0, 0), **heard}))
    assert job.state.members[1].peer_heard_at == (None if at is None else job.now + at)


def test_a_member_that_joins_after_the_end_changes_nothing() -> None:
    job = running(2)
    job.ends(0)
    job.ends(1)
    before = job.end
    job.joins(0)
    assert job.end == before is not None


def grown(job: Job, done: frozenset[int] = frozenset(), **member: object) -> bool:
    """Whether the round ends in favour of more members that have waited for long enough."""
    phase = job.state.phase
    assert isinstance(phase, Running)
    phase = Running(replace(phase.round, done=done), growing_since=job.now - 2)
    return not isinstance(ticked(job, phase, **member).phase, Running)


def test_a_round_grows_only_with_new_members() -> None:
    job = Job(3, min_members=1)
    job.waits(0, 1)
    job.passes(30)
    assert job.ranks == (0, 1)
    assert not grown(job), "the new member has gone"
    assert not grown(job, frozenset({1}), port=1), "a member that is done waits, and no other"
    job.hello(2)
    assert not grown(job), "a new member does not wait yet"


def test_a_round_of_the_largest_size_does_not_grow() -> None:
    job = Job(3, min_members=1, max_members=2)
    job.waits(0, 1, 2)
    assert not grown(job)


def test_members_of_a_running_round_that_wait_are_named_and_stopped() -> None:
    job = running(4)
    members = {index: replace(member, port=20000) for index, member in job.state.members.items()}
    state = decide(replace(job.state, members=members), Tick(), job.now).state
    assert isinstance(state.phase, Rendezvous)
    assert state.phase.reason == "pod-0, pod-1, pod-2 wait for a round"
    assert {member.port for member in state.members.values()} == {None}
