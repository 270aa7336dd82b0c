"""While a round runs: failures, pods that are asked to go, newcomers, members that agreed by themselves, the end."""

from itertools import pairwise
from typing import Any

import pytest

from pytorchjob_agent.contract.messages import (
    HEARTBEAT_SECONDS,
    LEASE_SECONDS,
    Done,
    Draining,
    Failed,
    Heartbeat,
    Join,
    Restart,
    Resumed,
    RoundId,
    Unreachable,
)
from pytorchjob_agent.contract.root_cause import CHILD_FAILED
from tests.rounds.story import Job, another_leader, expected, running, stopped

ECHO = "DistNetworkError: Connection closed by peer"
OF_TORCHRUN = f"{CHILD_FAILED}: see the log"


# Failures.


def test_a_failure_stops_everybody_at_once_and_all_begin_anew_together() -> None:
    job = running(3)
    job.fails(1)
    assert [job.heard(index).kind for index in range(3)] == ["restart"] * 3
    assert "rank 1 on pod-1 failed" in job.heard(0).reason
    stopped(job, 1, 0, 2)
    assert job.round == RoundId(1, 2)
    assert [job.assigned(index).restarts for index in range(3)] == [1, 1, 1]


def test_the_first_cause_is_told_and_the_cascade_is_named_as_such() -> None:
    job = running(3)
    job.passes(3, step=7)
    job.fails(0, ECHO)
    job.fails(2, "ValueError: bad batch", age=0.1)
    job.fails(1, ECHO)
    stopped(job, 0, 1, 2)
    words = "rank 2 (pod-2) exited with code 1 at step 7: ValueError: bad batch; 2 other ranks failed too"
    assert f"WorkerFailed: {words}" in job.events
    assert job.state.restarts == 1


def test_a_failure_of_a_round_that_is_over_is_not_heard() -> None:
    job = running(2)
    before = job.round
    job.fails(0)
    stopped(job, 0, 1)
    assert before is not None
    job.says(1, Failed(before, 1, 0, 1, "late"))
    assert job.runs
    assert job.state.restarts == 1


def test_who_still_says_that_it_waits_when_the_round_has_begun_hears_of_it_next() -> None:
    job = running(2)
    before = job.round
    job.fails(0)
    stopped(job, 0, 1)
    after = job.round
    job.says(0, Join(20000, before))
    assert (job.runs, job.round) == (True, after)


def test_a_failure_that_is_told_twice_counts_once() -> None:
    job = running(2)
    job.fails(0)
    job.hello(0)
    job.fails(0)
    stopped(job, 1)
    job.joins(0)
    assert job.state.restarts == 1


# Beats.


def test_an_agent_hears_of_the_coordinator_well_within_its_lease_but_not_at_each_beat() -> None:
    job = running(2)
    beats, silences = 20, LEASE_SECONDS / 2
    answered = [job.now]
    for _ in range(beats):
        job.passes(HEARTBEAT_SECONDS)
        if job.replies[0] >= len(answered):
            answered.append(job.now)
    assert len(answered) - 1 <= beats / 2 + 1
    assert max(later - earlier for earlier, later in pairwise(answered)) <= silences


def test_the_first_beat_on_a_new_connection_is_answered() -> None:
    job = running(2)
    job.passes(HEARTBEAT_SECONDS)
    job.hello(0, round=job.round, rank=0, size=2)
    job.passes(HEARTBEAT_SECONDS)
    assert job.replies[0] == 2


# Changes of members cost no restart.


@pytest.mark.parametrize("order", ["the echo first", "the loss first"])
@pytest.mark.parametrize("message", [ECHO, "", OF_TORCHRUN])
def test_what_fails_because_a_member_was_lost_does_not_count(order: str, message: str) -> None:
    job = running(3, min_members=2, max_restarts=0)
    if order == "the echo first":
        job.fails(0, message)
        job.joins(0)
        job.breaks(2)
    else:
        job.breaks(2)
        job.passes(2.5, silent=[2])
        job.fails(0, message)
        job.joins(0)
    stopped(job, 1)
    job.passes(4, silent=[2])
    assert job.ranks == (0, 1)
    assert job.state.restarts == 0
    assert sum("Regrouping: Round 1.1 ends" in event for event in job.events) == 1


@pytest.mark.parametrize("back", [True, False], ids=["it starts again", "it stays away"])
@pytest.mark.parametrize("late", [True, False], ids=["reported after the failure", "reported before it"])
@pytest.mark.parametrize("message", [OF_TORCHRUN, "ValueError: no"])
def test_a_failure_counts_although_a_member_that_is_done_leaves_because_of_it(
    message: str, late: bool, back: bool
) -> None:
    job = running(2, max_restarts=5)
    over = RoundId(1, 1)
    if not late:
        job.says(1, Done(over))
    job.fails(0, message)
    if late:
        job.says(1, Done(over))
    job.joins(0)
    job.breaks(1)
    if back:
        job.waits(1, incarnation="second")
        assert job.runs
    job.passes(12, silent=[] if back else [1])
    assert job.state.restarts == 1


def test_what_fails_after_a_pod_was_taken_away_does_not_count_though_its_connection_stands() -> None:
    job = running(3, min_members=2, max_restarts=0)
    job.expect({**job.pods, 0: expected(0, "another")})
    job.fails(1, ECHO)
    job.joins(1)
    stopped(job, 2)
    job.passes(12, silent=[0])
    assert job.ranks == (1, 2)
    assert job.state.restarts == 0


def test_what_fails_because_a_pod_left_does_not_count() -> None:
    job = running(2, min_members=1, max_restarts=0)
    job.passes(1, cooperative=True)
    job.goes(1)
    job.fails(0, ECHO)
    job.joins(0)
    job.passes(2, silent=[1])
    assert job.ranks == (0,)
    assert job.end is None


def test_a_failure_with_a_cause_of_its_own_counts_although_a_connection_is_lost() -> None:
    job = running(3, min_members=2)
    job.breaks(2)
    job.fails(0, "ValueError: no")
    stopped(job, 0, 1)
    job.passes(4, silent=[2])
    assert job.state.restarts == 1


def test_what_fails_after_everybody_was_told_to_stop_does_not_count() -> None:
    job = running(2, min_members=1, max_restarts=0)
    job.goes(1)
    job.fails(0, "ValueError: killed in the middle")
    job.joins(0)
    job.passes(2)
    assert job.ranks == (0,)
    assert job.end is None


# Pods that are asked to go.


def test_a_pod_that_has_to_go_goes_at_once_where_the_workers_do_not_save_on_request() -> None:
    job = running(3, min_members=2)
    job.goes(2)
    assert (job.heard(2).kind, job.heard(2).exit_code) == ("stop", 143)
    assert job.heard(0).kind == "restart"
    stopped(job, 0, 1)
    job.passes(1, silent=[2])
    assert job.ranks == (0, 1)


def test_workers_that_save_on_request_are_waited_for() -> None:
    job = running(2, min_members=1)
    job.passes(1, cooperative=True)
    job.goes(1, seconds=20)
    asked = job.heard(0)
    assert (asked.kind, asked.number, asked.seconds) == ("checkpoint", 1, 20)
    job.passes(5, cooperative=True)
    assert job.runs
    job.says(0, Heartbeat(cooperative=True, answered=1))
    assert job.runs
    job.says(1, Heartbeat(cooperative=True, answered=1))
    assert job.heard(0).kind == "restart"
    assert job.heard(1).exit_code == 143


def test_every_member_answers_also_one_whose_workers_have_not_polled_yet() -> None:
    job = running(2, min_members=1)
    job.says(1, Heartbeat(cooperative=True))
    job.goes(1, seconds=20)
    job.says(1, Heartbeat(cooperative=True, answered=1))
    assert job.runs
    job.says(0, Heartbeat(answered=1))
    assert job.heard(0).kind == "restart"


def test_a_member_whose_work_is_done_is_not_waited_for() -> None:
    job = running(2, min_members=1)
    job.passes(1, cooperative=True)
    job.says(0, Done(job.round))
    job.goes(1, seconds=20)
    job.says(1, Heartbeat(cooperative=True, answered=1))
    assert not job.runs


def test_workers_that_saved_in_an_earlier_round_are_asked_from_the_start_of_the_next() -> None:
    job = running(3, min_members=1)
    job.passes(1, cooperative=True)
    job.fails(1)
    stopped(job, 0, 1, 2)
    job.passes(1, step=11)
    job.goes(2, seconds=20)
    assert job.heard(0).kind == "checkpoint"


def test_and_not_longer_than_the_pod_has_left() -> None:
    job = running(2, min_members=1)
    job.passes(1, cooperative=True)
    job.goes(1, seconds=5)
    job.passes(4.75, cooperative=True)
    assert job.runs
    job.passes(0.25, cooperative=True)
    assert job.heard(1).exit_code == 143


def test_a_failure_while_the_others_save_lets_the_pod_go() -> None:
    job = running(2, min_members=1)
    job.passes(1, cooperative=True)
    job.goes(1, seconds=20)
    job.fails(0)
    assert job.heard(1).exit_code == 143


def test_who_missed_that_it_may_go_hears_it_when_it_comes_back() -> None:
    job = running(2, min_members=1)
    before = job.round
    job.goes(1)
    assert job.hello(1, round=before, rank=1, size=2).exit_code == 143


def test_who_missed_the_request_to_save_hears_it_when_it_comes_back() -> None:
    job = running(2, min_members=1)
    job.passes(1, cooperative=True)
    job.goes(1, seconds=20)
    assert job.hello(0, round=job.round, rank=0, size=2).kind == "checkpoint"


def test_a_request_of_a_new_leader_is_none_that_was_answered_before() -> None:
    job = another_leader(running(2, min_members=1))
    for rank in (0, 1):
        job.hello(rank, round=RoundId(1, 1), rank=rank, size=2)
    job.passes(1, cooperative=True, answered=4)
    job.goes(1, seconds=20)
    assert job.heard(0).number == 5
    assert job.runs


def test_a_new_leader_asks_to_save_before_the_first_heartbeat_says_whether_the_workers_do() -> None:
    job = another_leader(running(2, min_members=1))
    for rank in (0, 1):
        job.hello(rank, round=RoundId(1, 1), rank=rank, size=2)
    job.goes(1, seconds=20)
    assert job.heard(0).kind == "checkpoint"


def test_a_new_leader_restarts_at_once_when_the_heartbeats_say_that_the_workers_do_not_save() -> None:
    job = another_leader(running(2, min_members=1))
    for rank in (0, 1):
        job.hello(rank, round=RoundId(1, 1), rank=rank, size=2)
        job.says(rank, Heartbeat())
    job.goes(1, seconds=20)
    assert job.heard(0).kind == "restart"


@pytest.mark.parametrize(("handles", "seconds", "grace"), [(False, 20.0, 0.0), (True, 20.0, 20.0), (True, 900.0, 60.0)])
def test_workers_that_handle_sigterm_get_it_together_with_those_of_the_pod_that_goes(
    handles: bool, seconds: float, grace: float
) -> None:
    job = running(3, min_members=2)
    job.says(2, Draining(seconds, "SIGTERM", handles=handles))
    assert (job.heard(2).kind, [job.heard(index).grace for index in (0, 1)]) == ("stop", [grace] * 2)


@pytest.mark.parametrize("ends", [True, False])
def test_the_next_round_begins_once_the_handlers_are_through(ends: bool) -> None:
    job = running(2, min_members=1)
    job.says(1, Draining(20.0, "SIGTERM", handles=True))
    stopped(job, 0)
    job.passes(15)
    assert not job.runs, "the pod that goes still saves"
    if ends:
        job.breaks(1)
        job.passes(1, silent=[1])
    else:
        job.passes(7)
    assert job.ranks == (0,)


def test_a_member_that_comes_back_meanwhile_keeps_the_rest_of_the_time() -> None:
    job = running(3, min_members=2)
    before = job.round
    job.says(2, Draining(20.0, "SIGTERM", handles=True))
    job.passes(5)
    assert job.hello(0, round=before, rank=0, size=3).grace == 15.0


def test_handlers_have_what_is_left_after_a_save_on_request() -> None:
    job = running(2, min_members=1)
    job.passes(1, cooperative=True)
    job.says(1, Draining(20.0, "SIGTERM", handles=True))
    job.passes(5, cooperative=True)
    for index in (0, 1):
        job.says(index, Heartbeat(cooperative=True, answered=1))
    assert (job.heard(0).kind, job.heard(0).grace) == ("restart", 15.0)


def test_a_spare_goes_at_once() -> None:
    job = Job(2, min_members=1, max_members=1)
    job.waits(0, 1)
    job.goes(1)
    assert job.heard(1).exit_code == 143
    assert job.runs


def test_a_done_pod_goes_and_the_others_work_on() -> None:
    job = running(2)
    job.ends(1)
    job.goes(1)
    job.breaks(1)
    job.passes(5, silent=[1])
    assert job.runs
    job.ends(0)
    assert job.heard(0).kind == "finished"


# Newcomers.


def test_a_newcomer_makes_the_round_larger_after_a_moment_in_which_another_may_come() -> None:
    job = Job(4, min_members=1)
    job.waits(0, 1)
    job.passes(30)
    job.waits(2)
    assert "will restart with this pod" in job.heard(2).reason
    assert job.runs
    job.passes(1)
    assert "pod-2 joined" in job.heard(0).reason
    stopped(job, 0, 1)
    job.passes(1)
    assert job.ranks == (0, 1, 2)
    assert job.state.restarts == 0


def test_the_last_newcomer_makes_the_round_larger_at_once() -> None:
    job = Job(3, min_members=1)
    job.waits(0, 1)
    job.passes(30)
    job.waits(2)
    assert "pod-2 joined" in job.heard(0).reason
    stopped(job, 0, 1)
    assert job.ranks == (0, 1, 2)


def test_the_second_newcomer_hears_why_it_waits_too() -> None:
    job = Job(3, min_members=1)
    job.waits(0)
    job.passes(30)
    job.waits(1, 2)
    assert [job.heard(index).kind for index in (1, 2)] == ["hold", "hold"]


def test_before_a_round_grows_its_workers_save() -> None:
    job = Job(2, min_members=1)
    job.waits(0)
    job.passes(30, cooperative=True)
    job.waits(1)
    job.passes(1, silent=[1], cooperative=True)
    assert job.heard(0).kind == "checkpoint"
    job.says(0, Heartbeat(cooperative=True, answered=1))
    assert job.heard(0).kind == "restart"


def saves_each(seconds: int, times: int) -> Job:
    """A job of one pod whose script saves by itself, the last time four seconds ago, with room for another pod."""
    job = Job(2, min_members=1)
    job.waits(0)
    job.passes(30, saves=0)
    assert job.runs
    for number in range(1, times + 1):
        job.passes(seconds, saves=number - 1)
    job.passes(4, saves=times)
    return job


def test_a_round_whose_script_saves_by_itself_grows_after_its_next_save() -> None:
    job = saves_each(20, times=2)
    job.waits(1)
    assert "will restart with this pod, after its next save" in job.heard(1).reason
    job.passes(15, saves=2)
    assert job.runs
    job.passes(1, saves=3)
    assert job.runs, "other ranks may still save"
    job.passes(2, saves=3)
    assert "pod-1 joined" in job.heard(0).reason


@pytest.mark.parametrize(
    ("beats", "waits"),
    [
        pytest.param({"saves": 2}, 36, id="no save comes any more"),
        pytest.param({"saves": None}, 36, id="its saves are not seen any more"),
        pytest.param({"saves": 2, "cooperative": True}, 0, id="workers that save on request are asked"),
    ],
)
def test_a_round_does_not_wait_for_a_save_that_does_not_come(beats: dict[str, Any], waits: int) -> None:
    job = saves_each(20, times=2)
    job.passes(1, **beats)
    job.waits(1)
    told = [job.heard(0).kind]
    for _ in range(60):
        job.passes(1, **beats)
        told.append(job.heard(0).kind)
    waited = next(second for second, kind in enumerate(told) if kind in ("checkpoint", "restart"))
    assert abs(waited - waits) <= 2


def test_a_round_that_has_not_saved_yet_waits_for_a_script_that_did_before() -> None:
    job = saves_each(20, times=2)
    job.fails(0)
    job.joins(0)
    job.passes(3, saves=0)
    assert job.runs
    job.waits(1)
    job.passes(10, saves=0)
    assert job.runs, "what this round has trained is not saved"
    job.passes(4, saves=1)
    assert "pod-1 joined" in job.heard(0).reason


def test_a_round_that_comes_to_its_end_does_not_grow() -> None:
    job = Job(3, min_members=1)
    job.waits(0, 1)
    job.passes(30)
    job.ends(0)
    job.waits(2)
    job.passes(5)
    assert job.runs
    assert "is about to finish" in job.heard(2).reason


def test_spares_come_in_when_the_job_may_be_larger() -> None:
    job = Job(3, min_members=1, max_members=2)
    job.waits(0, 1, 2)
    assert job.ranks == (0, 1)
    job.policy = type(job.policy)(1, 3)
    job.expect()
    job.passes(1)
    assert "pod-2 joined" in job.heard(0).reason


# The end.


def test_the_job_is_done_when_all_are_done_and_not_before() -> None:
    job = running(3)
    job.ends(0)
    job.ends(2)
    assert job.end is None
    job.ends(1)
    assert [job.heard(index).kind for index in range(3)] == ["finished"] * 3
    assert job.end is not None


def test_spares_end_with_success_too() -> None:
    job = Job(3, min_members=1, max_members=2)
    job.waits(0, 1, 2)
    job.ends(0)
    job.ends(1)
    assert (job.heard(2).kind, job.heard(2).exit_code) == ("stop", 0)


def test_a_spare_does_not_begin_anew_when_another_leader_comes_after_the_success() -> None:
    job = another_leader(Job(3, min_members=1, max_members=2))
    job.expect({**job.pods, 0: expected(0, succeeded=True), 1: expected(1, succeeded=True)})
    job.waits(2)
    assert (job.heard(2).kind, job.heard(2).exit_code) == ("stop", 0)


def test_what_is_done_stays_done_when_the_pod_goes() -> None:
    job = running(2, min_members=1)
    job.ends(1)
    job.breaks(1)
    job.passes(5, silent=[1])
    job.expect({0: job.pods[0]})
    job.ends(0)
    assert job.heard(0).kind == "finished"


def test_a_new_pod_of_a_done_replica_does_not_end_the_round() -> None:
    job = running(2)
    job.ends(1)
    job.breaks(1)
    job.expect({**job.pods, 1: expected(1, "uid-new")})
    job.waits(1, pod_uid="uid-new", incarnation="second")
    job.passes(3)
    assert job.runs
    job.ends(0)
    assert (job.heard(1).kind, job.heard(1).exit_code) == ("stop", 0)


def test_done_of_another_round_is_not_heard() -> None:
    job = running(2)
    job.says(0, Done(RoundId(1, 9)))
    job.ends(1)
    assert job.end is None


def test_done_members_start_again_when_another_fails() -> None:
    job = running(2)
    job.ends(0)
    job.fails(1)
    stopped(job, 0, 1)
    assert job.runs
    job.ends(1)
    assert job.end is None, "replica 0 has to do its part again"


# Without the coordinator.


def test_members_that_agreed_by_themselves_tell_of_it() -> None:
    job = running(2)
    for index in (0, 1):
        job.says(index, Resumed(RoundId(1, 1, 1), 1, "a worker failed"))
    job.passes(5)
    assert job.runs
    assert job.round == RoundId(1, 1, 1)
    assert job.state.restarts == 1


@pytest.mark.parametrize("known", [True, False])
def test_who_agreed_while_the_others_went_on_elsewhere_starts_again(known: bool) -> None:
    job = running(2) if known else Job(2)
    if known:
        job.fails(0)
        stopped(job, 0, 1)
        job.hello(1)
        job.says(1, Join(20001))
    else:
        job.waits(1)
    job.says(1, Resumed(RoundId(1, 1, 1), 1, "a worker failed"))
    assert job.heard(1).kind == "restart"
    job.joins(0) if known else job.waits(0)
    job.passes(2)
    assert not job.runs, "nobody is put into a round while its workers run"
    job.joins(1)
    assert job.runs


def test_who_waited_before_the_members_agreed_and_is_heard_late_is_asked_and_not_counted_on() -> None:
    job, first, agreed = running(2), RoundId(1, 1), RoundId(1, 1, 1)
    job.says(1, Resumed(agreed, 1, "a worker failed"))
    job.says(0, Join(20000, first))
    assert [job.heard(index) for index in (0, 1)] == [Restart(agreed, "pod-0 has stopped its workers")] * 2
    job.says(1, Join(20001, agreed))
    job.passes(2)
    assert not job.runs, "replica 0 may have begun the round with the others"
    job.says(0, Join(20000, agreed))
    assert job.runs


def test_who_connects_while_the_agreed_round_begins_and_ends_stops_its_workers() -> None:
    """Its hello was sent before it began the round, so that it says nothing of workers."""
    job, first, agreed = running(3), RoundId(1, 1), RoundId(1, 1, 1)
    job.breaks(2)
    job.says(0, Resumed(agreed, 1, "a worker failed"))
    job.says(1, Join(20001, first))
    job.hello(2, last_round=first, rank=2, size=3)
    assert "restart" not in job.kinds(2)
    job.says(2, Resumed(agreed, 1, "a worker failed"))
    assert job.heard(2) == Restart(agreed, "pod-1 has stopped its workers", caused=True)


def test_a_closed_port_is_a_problem_of_the_job() -> None:
    job = running(2)
    assert job.round is not None
    job.says(1, Unreachable(job.round, "10.0.0.0:20000", "timed out"))
    words = job.problem("PeerUnreachable") or ""
    assert "pod-1 cannot connect to 10.0.0.0:20000: timed out" in words
    assert "NetworkPolicy" in words
    job.fails(1)
    stopped(job, 0, 1)
    assert job.problem("PeerUnreachable") is None


def test_what_fails_because_a_member_did_not_agree_on_the_round_costs_nothing() -> None:
    job = running(2)
    agreed = RoundId(1, 1, 1)
    job.says(0, Resumed(agreed, 1, "a worker failed"))
    job.says(1, Join(20001, RoundId(1, 1)))
    job.fails(0, "DistNetworkError: Connection closed by peer")
    job.says(0, Join(20000, agreed))
    job.says(1, Join(20001, agreed))
    assert (job.runs, job.state.restarts) == (True, 1)


def begun_after(seconds: int, job: Job) -> Job:
    """The round has taken so long to show its first step; 0: it shows none."""
    if seconds:
        job.passes(seconds)
        job.passes(1, step=1)
    return job


@pytest.mark.parametrize(
    ("cost", "waits"),
    [
        pytest.param(0, 1, id="what a round costs is unknown"),
        pytest.param(20, 20, id="a round takes 20 s to begin"),
        pytest.param(300, 60, id="a round takes long to begin"),
    ],
)
def test_a_round_gathers_newcomers_for_as_long_as_a_round_takes_to_begin(cost: int, waits: int) -> None:
    job = Job(4, min_members=1)
    job.waits(0, 1)
    job.passes(31)
    job = begun_after(cost, job)
    assert job.runs
    job.waits(2)
    assert abs(until_restart(job) - waits) <= 2


def test_a_save_while_a_round_gathers_is_not_the_last_one_before_it_restarts() -> None:
    job = Job(4, min_members=1)
    job.waits(0, 1)
    job.passes(31)
    job = begun_after(30, job)
    for number in (1, 2):
        job.passes(25, saves=number)
    job.passes(10, saves=2)
    job.waits(2)
    job.passes(16, saves=2)
    job.passes(15, saves=3)
    assert job.runs, "it still gathers, or waits for the next save"
    job.passes(15, saves=3)
    assert job.runs, "what it has trained since is not saved"
    job.passes(4, saves=4)
    assert job.heard(0).kind == "restart"


def test_a_round_does_not_gather_once_all_have_come() -> None:
    job = Job(3, min_members=1)
    job.waits(0, 1)
    job.passes(31)
    job = begun_after(20, job)
    job.waits(2)
    assert until_restart(job) <= 1


def until_restart(job: Job) -> float:
    """Return the seconds until the round restarts."""
    for second in range(90):
        if job.heard(0).kind == "restart":
            return second
        job.passes(1)
    raise AssertionError("no restart within 90 s")
