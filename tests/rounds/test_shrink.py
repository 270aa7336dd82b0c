"""A round goes on without a lost member, or a new round begins: which of them, and why."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_agent.contract.messages import Checkpoint, Draining, Heartbeat, Restart, Shrink, Stop
from pytorchjob_agent.contract.reasons import ShrinkState, TrainingReason
from pytorchjob_operator.rounds.summary import summarize
from tests.rounds.story import Job, another_leader, expected, running

READY = {"shrinks": ShrinkState.READY.value}


def surviving(replicas: int = 3, least: int = 1, beat: dict[str, Any] | None = None, **policy: Any) -> Job:
    """A running job whose workers say that they can go on."""
    job = running(replicas, min_members=least, **{"survive": True, **policy})
    job.passes(1, **(READY if beat is None else beat))
    return job


def killed(job: Job, index: int, **said: Any) -> None:
    """The kernel has killed the worker of a member, which joins again."""
    job.fails(index, "killed by SIGKILL", exit_code=137, **said)
    if job.runs:
        job.joins(index)


def shrinks(job: Job, index: int) -> list[Shrink]:
    return [message for message in job.told[index] if isinstance(message, Shrink)]


def why_not(job: Job) -> str:
    """The word in the event about a new round."""
    return next(event.rpartition(" ")[2] for event in job.events if event.startswith(TrainingReason.CANNOT_GO_ON))


def test_the_others_hear_who_has_left_and_their_round_runs_on() -> None:
    job = surviving()
    killed(job, 1)
    assert job.runs
    change, again = shrinks(job, 0)
    assert again == replace(change, awaited=True, reason=""), "the killed worker's agent waits to come back"
    assert (change.round, change.number, change.members, change.ranks) == (job.round, 1, (1,), (1,))
    assert shrinks(job, 2) == [change, again]
    assert shrinks(job, 1) == [change], "it reports its failure to no other coordinator"
    assert "restart" not in job.kinds(0) + job.kinds(2)
    assert job.state.restarts == 1, "it counts like a failure that ends a round"
    report = summarize(job.state, job.now)
    assert (report.members, report.world, report.spares) == (2, 2, 1)


def test_the_ranks_of_a_member_with_several_workers_leave_together() -> None:
    job = Job(3, min_members=1, survive=True)
    job.waits(0, 1, 2, nproc=2)
    job.passes(1, **READY)
    job.says(1, Draining(10.0, ""))
    assert shrinks(job, 0)[-1].ranks == (2, 3)


def test_the_others_go_on_without_a_rank_that_a_signal_has_stopped() -> None:
    job = surviving()
    job.fails(1, "stopped by a signal", hang=True, stopped=True)
    assert shrinks(job, 0)[0].ranks == (1,)
    assert job.runs


def test_workers_that_stand_still_behind_a_save_get_their_round_at_once() -> None:
    job = surviving()
    killed(job, 1)
    job.passes(5, **READY)
    assert job.runs
    job.passes(1, shrinks=ShrinkState.HELD.value)
    assert "restart" in job.kinds(0)


def test_workers_that_are_asked_to_save_are_not_told_to_stop_behind_a_save() -> None:
    job = surviving(beat={**READY, "cooperative": True, "saves_on_request": True})
    killed(job, 1)
    job.passes(2, **READY, cooperative=True, saves_on_request=True)
    assert "checkpoint" in job.kinds(0)
    assert not any(change.awaited for change in shrinks(job, 0))


def test_a_save_that_ended_before_the_workers_heard_of_it_is_not_the_one() -> None:
    job = surviving()
    killed(job, 1)
    job.passes(1, **READY, saves=1)
    job.passes(5, **READY, saves=1)
    assert job.runs


def test_nobody_stops_at_a_save_for_a_pod_that_is_gone_again() -> None:
    job = surviving()
    killed(job, 1)
    assert shrinks(job, 0)[-1].awaited
    job.breaks(1)
    job.expect({index: expected(index) for index in (0, 2)})
    job.passes(6, silent=[1], **READY)
    assert not shrinks(job, 0)[-1].awaited
    assert shrinks(job, 0)[-1].number == 1


def test_a_second_loss_follows_the_first() -> None:
    job = surviving(4)
    killed(job, 3)
    killed(job, 1)
    heard = [(change.number, change.ranks) for change in shrinks(job, 0)]
    assert list(dict.fromkeys(heard)) == [(1, (3,)), (2, (1, 3))]
    assert job.runs


def test_a_lost_pod_leaves_its_round() -> None:
    job = surviving()
    job.breaks(1)
    job.expect({index: expected(index) for index in (0, 2)})
    job.passes(3, silent=[1], **READY)
    assert shrinks(job, 0)[0].ranks == (1,)
    assert job.runs


def test_a_pod_is_lost_at_once_if_its_connections_to_agent_and_workers_have_ended() -> None:
    job = surviving()
    job.breaks(1)
    job.passes(0.5, silent=[1], **READY)
    assert shrinks(job, 0) == [], "it may connect again"
    job.passes(1, silent=[1], shrinks=ShrinkState.BROKEN.value)
    assert shrinks(job, 0)[0].ranks == (1,)
    assert job.runs


def test_a_connection_among_workers_that_breaks_is_no_lost_pod() -> None:
    job = surviving()
    job.passes(2, shrinks=ShrinkState.BROKEN.value)
    assert shrinks(job, 0) == []


def test_which_of_two_pods_without_a_connection_is_lost_is_not_known() -> None:
    job = surviving()
    for index in (1, 2):
        job.breaks(index)
    job.passes(1, silent=[1, 2], shrinks=ShrinkState.BROKEN.value)
    assert job.runs
    assert shrinks(job, 0) == []


def test_a_pod_that_terminates_leaves_at_once_and_is_stopped() -> None:
    job = surviving()
    job.says(1, Draining(20.0, "preempted"))
    assert isinstance(job.heard(1), Stop)
    assert shrinks(job, 0)[0].ranks == (1,)
    assert job.runs


def _several(job: Job) -> None:
    job.breaks(2)
    killed(job, 1)


def _saved(job: Job) -> None:
    job.says(1, Heartbeat(saves=1, shrinks=ShrinkState.READY))
    killed(job, 1)


def _done(job: Job) -> None:
    job.ends(2)
    killed(job, 1)


def _planned(job: Job) -> None:
    job.says(0, Heartbeat(cooperative=True, **READY))
    job.says(2, Draining(20.0, "", handles=True))
    assert isinstance(job.heard(0), Checkpoint)
    killed(job, 1)


CASES: dict[str, tuple[ShrinkState, Callable[[], Job], Callable[[Job], None]]] = {
    "rank 0": (ShrinkState.FIRST_RANK, surviving, lambda job: killed(job, 0)),
    "a rank that has saved": (ShrinkState.SAVES, surviving, _saved),
    "fewer than the least": (ShrinkState.TOO_FEW, lambda: surviving(least=3), lambda job: killed(job, 1)),
    "members are done": (ShrinkState.ENDING, surviving, _done),
    "a restart is planned": (ShrinkState.ENDING, surviving, _planned),
    "another connection is lost": (ShrinkState.SEVERAL, surviving, _several),
    "a hang": (ShrinkState.UNCLEAR, surviving, lambda job: job.fails(1, "hangs", hang=True)),
    "a hang beside which it waits": (
        ShrinkState.UNCLEAR,
        surviving,
        lambda job: job.fails(1, "hangs", hang=True, waits=True, stopped=True),
    ),
    "it may have lost another": (ShrinkState.UNCLEAR, surviving, lambda job: job.fails(1, "DistNetworkError: gone")),
    "several ranks of a pod": (ShrinkState.UNCLEAR, surviving, lambda job: killed(job, 1, also=(2,))),
    "agents that say nothing": (ShrinkState.NOT_READY, lambda: surviving(beat={}), lambda job: killed(job, 1)),
    "a word of a newer agent": (
        ShrinkState.NOT_READY, lambda: surviving(beat={"shrinks": "Unheard"}), lambda job: killed(job, 1)
    ),
    "workers that cannot": (
        ShrinkState.GROUPS, lambda: surviving(beat={"shrinks": ShrinkState.GROUPS}), lambda job: killed(job, 1)
    ),
    "the last restart": (ShrinkState.POLICY, lambda: surviving(max_restarts=0), lambda job: killed(job, 1)),
}  # fmt: skip


@pytest.mark.parametrize(("why", "begin", "lose"), CASES.values(), ids=CASES)
def test_a_new_round_begins_instead(why: ShrinkState, begin: Callable[[], Job], lose: Callable[[Job], None]) -> None:
    job = begin()
    lose(job)
    assert not job.runs
    assert why_not(job) == why
    assert shrinks(job, 0) == shrinks(job, 2) == []


def test_without_the_field_nothing_changes() -> None:
    job = surviving(survive=False)
    killed(job, 1)
    assert isinstance(job.heard(0), Restart)
    assert not [event for event in job.events if event.startswith(TrainingReason.CANNOT_GO_ON)]


def test_a_member_that_has_left_comes_back_when_the_others_stand_behind_a_save() -> None:
    job = surviving(rejoin_within=100.0)
    killed(job, 1)
    job.passes(20, **READY)
    job.says(0, Heartbeat(saves=1, **READY))  # a heartbeat may be late: this save may be older than the loss
    job.passes(3, saves=1, **READY)
    assert job.runs
    job.says(0, Heartbeat(saves=2, shrinks=ShrinkState.HELD))
    job.passes(1, silent=[0], saves=2, **READY)
    assert isinstance(job.heard(0), Restart)


def test_a_member_that_has_left_waits_no_longer_than_it_may() -> None:
    job = surviving(rejoin_within=10.0)
    killed(job, 1)
    job.passes(8, **READY)
    assert job.runs
    job.passes(5, **READY)
    assert isinstance(job.heard(0), Restart)


def test_a_woken_member_is_told_that_the_others_go_on() -> None:
    job = surviving()
    job.breaks(1)
    job.passes(4, silent=[1], **READY)
    heard = job.hello(1, round=job.round, rank=1, size=3)
    assert isinstance(heard, Restart)
    assert job.runs


def test_a_member_that_connects_again_hears_the_change_again() -> None:
    job = surviving()
    killed(job, 1)
    job.breaks(2)
    job.hello(2, round=job.round, rank=2, size=3, left=(1,))
    assert shrinks(job, 2)[0].ranks == (1,)


def test_the_others_end_the_job_without_it() -> None:
    job = surviving()
    killed(job, 1)
    job.ends(0)
    job.ends(2)
    assert job.end is not None
    assert job.end.exit_code == 0


def test_another_leader_learns_who_has_left() -> None:
    job = surviving()
    killed(job, 1)
    id_ = job.round
    after = another_leader(job)
    for index in (0, 2):
        after.hello(index, round=id_, rank=index, size=3, left=(1,))
    after.hello(1, last_round=id_, rank=1, size=3)
    after.joins(1)
    after.passes(12, **READY)
    assert after.runs
    assert after.round == id_
    assert summarize(after.state, after.now).members == 2


def test_under_another_leader_the_others_go_on_without_a_lost_member_once_all_are_here() -> None:
    job = surviving()
    id_, after = job.round, another_leader(job)
    for index in range(3):
        after.hello(index, round=id_, rank=index, size=3, change=4)
        after.says(index, Heartbeat(**READY))
    killed(after, 1)
    assert after.runs
    assert after.round == id_
    assert shrinks(after, 0)[0].ranks == (1,)
    assert shrinks(after, 0)[0].number == 5, "the workers know the number 4"


@pytest.mark.parametrize(
    ("beat", "found"),
    [(READY, ShrinkState.READY), ({}, ShrinkState.NOT_READY), ({"shrinks": ShrinkState.HOOK}, ShrinkState.HOOK)],
)
def test_the_report_says_whether_a_loss_would_restart_all(beat: dict[str, Any], found: ShrinkState) -> None:
    job = surviving(beat=beat)
    assert summarize(job.state, job.now).survive is found


def test_a_round_that_has_just_begun_loses_nobody() -> None:
    """Its members may not have heard of it yet; what they said of the round before is void."""
    job = surviving()
    job.fails(0)
    for index in range(3):
        job.joins(index)
    assert job.runs
    job.says(1, Draining(10.0, ""))
    assert not job.runs
    reasons = [event.rpartition(" ")[2] for event in job.events if event.startswith(TrainingReason.CANNOT_GO_ON)]
    assert reasons == [ShrinkState.FIRST_RANK, ShrinkState.NOT_READY]


def test_a_failure_that_is_reported_again_counts_once() -> None:
    job = surviving()
    killed(job, 1)
    job.hello(1, last_round=job.round, rank=1, size=3)
    job.fails(1, "killed by SIGKILL", exit_code=137)
    job.joins(1)
    assert job.runs
    assert job.state.restarts == 1


def test_rank_0_that_goes_on_alone_is_not_taken_for_gone_because_the_other_one_is() -> None:
    job = surviving(2)
    killed(job, 1)
    job.pods[1] = expected(1, "uid-new")
    job.expect(job.pods)
    job.hello(1, pod_uid="uid-new", incarnation="second-1")
    job.joins(1)
    job.breaks(0)
    job.passes(9, silent=[0], **READY)
    assert not job.runs, "rank 0 may still train"
