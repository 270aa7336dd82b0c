"""A lost member comes back into a running round: who is told what, and what ends its way back."""

from collections.abc import Callable
from typing import Any

import pytest

from pytorchjob_agent.contract.messages import Assigned, Draining, Heartbeat, Join, Restart, Shrink
from pytorchjob_agent.contract.reasons import ShrinkState, TrainingReason
from pytorchjob_operator.rounds.state import Tick
from pytorchjob_operator.rounds.summary import summarize
from tests.rounds.story import Job, expected, running

TAKES_IN: dict[str, Any] = {"shrinks": ShrinkState.READY.value, "shares_state": True}


def on_its_way(replicas: int = 3, **policy: Any) -> Job:
    """A job of which member 1 was killed, and is about to come back into its round."""
    job = running(replicas, min_members=1, **{"survive": True, **policy})
    job.passes(1, **TAKES_IN)
    job.fails(1, "killed by SIGKILL", exit_code=137)
    job.joins(1)
    return job


def changes(job: Job, index: int) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """The number, the ranks that have left, and those that come in, of all changes that a member heard of."""
    found = [message for message in job.told[index] if isinstance(message, Shrink)]
    return list(dict.fromkeys((change.number, change.ranks, change.entering) for change in found))


def enters(job: Job, index: int = 1) -> list[int]:
    """By which changes a member was to come in."""
    return [message.enters for message in job.told[index] if isinstance(message, Assigned) and message.enters]


def beat(job: Job, index: int, **said: Any) -> None:
    job.says(index, Heartbeat(**{**TAKES_IN, **said}))


def test_it_gets_its_place_in_the_round_that_runs() -> None:
    job = on_its_way()
    assert job.runs
    first = next(message for message in job.told[1] if isinstance(message, Assigned))
    again = job.told[1][-1]
    place = (again.round, again.rank, again.size, again.first_rank, again.world_size, again.restarts)
    assert place == (first.round, 1, 3, 1, 3, 0), "its workers know the number of restarts that the others know"
    assert (again.master_address, again.master_port) == (first.master_address, first.master_port)
    assert enters(job) == [2]
    assert changes(job, 0) == changes(job, 2) == [(1, (1,), ()), (1, (1,), (1,))]
    assert summarize(job.state, job.now).without == ("pod-1",), "it has not come in yet"


@pytest.mark.parametrize("who", [0, 1, 2])
def test_it_is_back_once_any_of_them_says_so(who: int) -> None:
    job = on_its_way()
    beat(job, who, entered=2)
    report = summarize(job.state, job.now)
    assert (report.members, report.world, report.without) == (3, 3, ())
    assert job.events[-1].startswith(TrainingReason.CAME_BACK)
    assert [changes(job, index)[-1] for index in range(3)] == [(2, (), ())] * 3
    assert "restart" not in job.kinds(0) + job.kinds(1) + job.kinds(2)
    job.passes(2, **TAKES_IN, entered=2)
    job.fails(1, "killed by SIGKILL", exit_code=137)
    assert changes(job, 0)[-1] == (3, (1,), ()), "and it can be lost again"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"shrinks": ShrinkState.READY.value}, "a script that does not share its state"),
        ({**TAKES_IN, "shrinks": ShrinkState.NOT_READY.value}, "a script that does not train yet"),
    ],
)
def test_it_waits_for_a_save_where_it_cannot_come_in(said: dict[str, Any], why: str) -> None:
    job = running(3, min_members=1, survive=True)
    job.passes(1, **TAKES_IN)
    job.fails(1, "killed by SIGKILL", exit_code=137)
    job.passes(1, silent=[1], **said)
    job.joins(1)
    assert enters(job) == [], why
    job.passes(1, silent=[1], **TAKES_IN)
    assert enters(job) == [2], "it comes in as soon as it can"


def test_a_member_with_another_number_of_workers_does_not_come_in() -> None:
    job = running(3, min_members=1, survive=True)
    job.passes(1, **TAKES_IN)
    job.breaks(1)
    job.passes(3, silent=[1], **TAKES_IN)
    job.waits(1, incarnation="second", nproc=2)
    assert enters(job) == []


def fails(job: Job) -> None:
    job.fails(1, "ValueError: no")


def joins(job: Job) -> None:
    job.says(1, Join(20001, job.round))


def terminates(job: Job) -> None:
    job.says(1, Draining(10.0, ""))


def is_lost(job: Job) -> None:
    job.breaks(1)
    job.expect({index: expected(index) for index in (0, 2)})
    job.passes(3, silent=[1], **TAKES_IN)


def restarts(job: Job) -> None:
    job.breaks(1)
    job.waits(1, incarnation="second")


@pytest.mark.parametrize("happens", [fails, joins, terminates, is_lost, restarts])
def test_a_member_that_is_lost_on_its_way_costs_no_round(happens: Callable[[Job], None]) -> None:
    """The others may have taken it in already: they form their group again, and it has another number."""
    job = on_its_way()
    restarts_before = job.state.restarts
    happens(job)
    assert job.runs
    assert changes(job, 0)[-1] == (3, (1,), ())
    assert job.state.restarts == restarts_before
    assert enters(job) in ([2], []), "in this round it does not try again"


def test_after_a_failure_on_its_way_it_comes_back_by_a_restart_of_all() -> None:
    job = on_its_way()
    fails(job)
    joins(job)
    job.passes(4, silent=[1], **TAKES_IN)
    assert changes(job, 0)[-1] == (3, (1,), ())
    assert [message.awaited for message in job.told[0] if isinstance(message, Shrink)][-1]
    job.passes(1, silent=[1], **{**TAKES_IN, "shrinks": ShrinkState.HELD.value})
    assert "restart" in job.kinds(0)


def test_a_member_that_does_not_come_in_is_stopped_in_time() -> None:
    job = on_its_way(rejoin_within=30.0)
    job.passes(29, **TAKES_IN)
    assert not [message for message in job.told[1] if isinstance(message, Restart)]
    job.passes(2, **TAKES_IN)
    assert [message for message in job.told[1] if isinstance(message, Restart)]
    assert changes(job, 0)[-1] == (3, (1,), ())


def test_the_word_that_it_has_come_in_may_be_too_late() -> None:
    job = on_its_way(rejoin_within=30.0)
    job.passes(29, **TAKES_IN)
    job.now += 2
    job.feed(Tick())
    assert changes(job, 0)[-1] == (3, (1,), ())
    beat(job, 2, entered=2)
    assert summarize(job.state, job.now).without == ("pod-1",)
    assert changes(job, 0)[-1] == (3, (1,), ())


def test_another_loss_ends_its_way_and_it_begins_again() -> None:
    job = on_its_way(4)
    job.fails(3, "killed by SIGKILL", exit_code=137)
    assert job.runs
    assert isinstance(job.told[1][-1], Restart), "the others may already form the group without it"
    assert changes(job, 0)[-1] == (3, (1, 3), ())
    job.says(1, Join(20001, job.round))
    assert enters(job) == [2, 4]
    assert changes(job, 0)[-1] == (3, (1, 3), (1,))


def test_a_new_round_stops_it_too() -> None:
    job = on_its_way()
    job.fails(0, "ValueError: no")
    assert not job.runs
    assert isinstance(job.told[1][-1], Restart)


def test_a_connection_that_breaks_on_its_way_is_made_again() -> None:
    job = on_its_way()
    job.breaks(1)
    job.hello(1, round=job.round, rank=1, size=3)
    assert job.kinds(1) == ["welcome"]
    beat(job, 1, entered=2)
    assert summarize(job.state, job.now).without == ()


def test_two_lost_members_come_back_one_after_the_other() -> None:
    job = on_its_way(4)
    beat(job, 0, entered=2)
    job.passes(1, **TAKES_IN, entered=2)
    job.fails(2, "killed by SIGKILL", exit_code=137)
    job.fails(3, "killed by SIGKILL", exit_code=137)
    job.joins(2, 3)
    assert (enters(job, 2), enters(job, 3)) == ([5], [])
    beat(job, 0, entered=5)
    job.passes(1, silent=[3], **TAKES_IN, entered=5)
    assert enters(job, 3) == [6]
    beat(job, 3, entered=6)
    assert summarize(job.state, job.now).without == ()
