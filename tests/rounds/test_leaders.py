"""Leaders that change between two rounds: the new one learns from the members how the last round ended."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_agent.contract.messages import Failed, Join, Restart, RoundId
from pytorchjob_agent.contract.reasons import EndReason
from pytorchjob_operator.rounds.state import JobSynced
from pytorchjob_operator.rounds.summary import summarize
from tests.rounds.story import Job, another_leader, error_types, expected, running


def leader_between_rounds(before: Job, **policy: Any) -> Job:
    """A new leader, while no member of the last round has workers."""
    after = another_leader(before)
    after.policy = replace(after.policy, **policy)
    after.expect()
    return after


ECHO = "DistNetworkError: Connection closed by peer"


def comes_back(job: Job, index: int, last: RoundId, restarts: int = 0, failure: str = "", **join: Any) -> None:
    """A member without workers reports how its last round ended, and waits."""
    past = {name: join.pop(name) for name in ("past_failures", "past_age") if name in join}
    job.hello(index, last_round=last, rank=index, size=len(job.pods), restarts=restarts, **past)
    if failure:
        job.says(index, Failed(last, index, 0, 1, failure, errors=error_types(failure)))
    job.says(index, Join(20000 + index, last, **join))


@pytest.mark.parametrize(
    ("failures", "restarts"),
    [
        pytest.param({}, 4, id="nothing failed"),
        pytest.param({1: "ValueError: no"}, 5, id="a worker failed"),
        pytest.param({0: ECHO, 2: "ValueError: no"}, 5, id="a failure and its echo"),
        pytest.param({0: ECHO}, 5, id="an echo, and nobody was lost"),
    ],
)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_new_leader_counts_the_failure_that_ended_the_last_round(
    order: tuple[int, ...], failures: dict[int, str], restarts: int
) -> None:
    job = leader_between_rounds(running(3))
    for index in order:
        assert not job.runs
        comes_back(job, index, RoundId(1, 7), 4, failures.get(index, ""))
    assert (job.runs, job.round, job.state.restarts) == (True, RoundId(2, 1), restarts)
    assert {job.assigned(index).restarts for index in order} == {restarts}


@pytest.mark.parametrize("caused", [True, False])
def test_a_new_leader_learns_from_a_member_that_the_last_round_was_ended_for_another_reason(caused: bool) -> None:
    job = leader_between_rounds(running(2))
    comes_back(job, 0, RoundId(1, 1), failure=ECHO)
    comes_back(job, 1, RoundId(1, 1), caused=caused)
    assert job.state.restarts == (0 if caused else 1)


@pytest.mark.parametrize("caused", [True, False])
def test_also_from_a_member_that_knows_of_a_later_round_which_it_never_began(caused: bool) -> None:
    job = leader_between_rounds(running(2))
    job.hello(1, last_round=RoundId(1, 1), rank=1, size=2)
    job.says(1, Join(20001, RoundId(1, 2), caused=caused))
    comes_back(job, 0, RoundId(1, 1), failure=ECHO)
    assert job.state.restarts == (0 if caused else 1)


def test_eight_failures_and_as_many_leaders_end_a_job_with_two_restarts() -> None:
    job = leader_between_rounds(running(2), max_restarts=2)
    ends = []
    for failure in range(8):
        last = RoundId(1, 1 + failure)
        comes_back(job, 0, last, job.state.restarts, failure="ValueError: no")
        comes_back(job, 1, last, job.state.restarts)
        ends.append(job.end)
        if job.end is not None:
            break
        counted = {job.assigned(index).restarts for index in (0, 1)}
        assert counted == {failure + 1}
        job = leader_between_rounds(job, max_restarts=2)
        job.state = replace(job.state, restarts=failure + 1)  # as its members report: see comes_back
    assert len(ends) == 3
    assert ends[-1] is not None
    assert ends[-1].reason is EndReason.BUDGET


def test_a_new_leader_waits_for_the_members_of_the_last_round_before_it_counts() -> None:
    """The first member reports an echo; who failed first connects later."""
    job = leader_between_rounds(running(3, min_members=1, last_call_timeout=3.0))
    comes_back(job, 0, RoundId(1, 1), failure=ECHO)
    job.passes(9.5)
    assert (job.runs, job.state.restarts) == (False, 0)
    comes_back(job, 1, RoundId(1, 1), failure="ValueError: no")
    comes_back(job, 2, RoundId(1, 1))
    assert (job.runs, job.state.restarts) == (True, 1)


def test_a_new_leader_does_not_wait_for_members_that_cannot_come() -> None:
    job = leader_between_rounds(running(3))
    comes_back(job, 0, RoundId(1, 1))
    comes_back(job, 1, RoundId(1, 1))
    job.waits(2, incarnation="its container was started again")
    assert job.runs


@pytest.mark.parametrize("first", ["the one that runs", "the one without workers"])
def test_a_member_that_still_runs_the_last_round_and_one_that_does_not_meet_at_a_new_leader(first: str) -> None:
    job, last = leader_between_rounds(running(2)), RoundId(1, 1)
    if first == "the one that runs":
        job.hello(0, round=last, rank=0, size=2)
        comes_back(job, 1, last, failure="ValueError: no")
        assert job.heard(0) == Restart(last, "pod-1 has stopped its workers")
    else:
        comes_back(job, 1, last, failure="ValueError: no")
        job.hello(0, round=last, rank=0, size=2)
        assert job.heard(0).kind == "restart"
    job.says(0, Join(20000, last))
    assert (job.runs, job.state.restarts) == (True, 1)


def test_the_status_restores_what_no_agent_knows() -> None:
    job = leader_between_rounds(running(2))
    job.feed(JobSynced(job.policy, job.pods, restarts=6))
    job.waits(0, 1)
    assert {job.assigned(index).restarts for index in (0, 1)} == {6}
    job.feed(JobSynced(job.policy, job.pods, restarts=2))
    assert job.state.restarts == 6, "a status may be older than the coordinator"


def test_a_waiting_member_of_an_earlier_round_changes_nothing() -> None:
    job = running(2)
    job.breaks(0)
    job.hello(0, round=job.round, rank=0, size=2)
    job.hello(1, incarnation="first-1", last_round=RoundId(1, 0), rank=0, size=2)
    assert job.state.round is not None
    assert job.state.round.id == RoundId(1, 1)


def test_a_job_that_ended_well_before_the_leader_changed_does_not_begin_again() -> None:
    """Its last spare waits; a pod of the round has succeeded."""
    job = leader_between_rounds(running(3, min_members=1), last_call_timeout=3.0)
    job.expect({**job.pods, 0: expected(0, succeeded=True)})
    comes_back(job, 2, RoundId(1, 1))
    assert job.end is not None
    assert job.end.reason is EndReason.SUCCEEDED


def test_what_fails_because_a_member_was_cut_off_costs_nothing_although_its_peers_report_first() -> None:
    job = running(2)
    job.fails(0, ECHO)
    job.joins(0)
    job.says(1, Join(20001, job.round, caused=True))
    assert (job.runs, job.state.restarts) == (True, 0)


# The times and kinds of failures survive, too.


def fail_in_turn(
    leaders: int, seconds: float, failure: str = "ValueError: no", **policy: Any
) -> list[EndReason | None]:
    """A failure every so many seconds, and another leader after each; returns how the job stands each time."""
    job, found, past, restarts = leader_between_rounds(running(2), **policy), [], (), 0
    for number in range(leaders):
        last = RoundId(1, 1 + number)
        job.now += seconds
        job.checked_at = job.now
        for index, text in ((0, failure), (1, "")):
            comes_back(job, index, last, restarts, text, past_failures=past, past_age=int(seconds))
        found.append(None if job.end is None else job.end.reason)
        if job.end is not None:
            return found
        past, restarts = job.assigned(0).past_failures, job.assigned(0).restarts
        job = leader_between_rounds(job, **policy)
    return found


@pytest.mark.parametrize(
    ("seconds", "ends"),
    [pytest.param(30.0, True, id="three within a minute"), pytest.param(50.0, False, id="two within a minute at most")],
)
def test_only_failures_of_the_window_count_whichever_leader_saw_them(seconds: float, ends: bool) -> None:
    found = fail_in_turn(6, seconds, max_restarts=2, restart_window=70.0)
    assert (found[-1] is EndReason.BUDGET) is ends
    assert len(found) == (3 if ends else 6)


def test_a_round_whose_progress_only_a_former_leader_saw_does_not_end_the_job() -> None:
    assert fail_in_turn(8, 30.0) == [None] * 8


def test_failures_of_former_leaders_are_no_news_for_the_status() -> None:
    job = leader_between_rounds(running(2))
    comes_back(job, 0, RoundId(1, 1), 1, past_failures=(30, 0, 77))
    assert [past.at for past in job.state.history] == [job.now - 30]
    assert summarize(job.state, job.now).last_restart is None


# An agent that was frozen when the leader changed has no connection to the new one that could fall silent.


def silent(job: Job) -> list[str]:
    return [pod.uid for pod in summarize(job.state, job.now).silent]


def a_round_without_one_member(pods: int = 3) -> Job:
    """A new leader forms the next round of an elastic job: a container was started again, one does not come."""
    job = leader_between_rounds(running(3, min_members=1), last_call_timeout=3.0)
    comes_back(job, 0, RoundId(1, 1))
    job.expect({index: expected(index) for index in range(pods)})
    job.waits(2, incarnation="its container was started again")
    job.passes(12)  # a new leader waits for members that may be among the pods
    assert (job.runs, job.ranks) == (True, (0, 2))
    return job


def test_a_member_of_the_last_round_that_never_comes_to_a_new_leader_is_reported_as_silent() -> None:
    assert silent(a_round_without_one_member()) == ["uid-1"]


def test_it_is_not_once_it_has_come() -> None:
    job = a_round_without_one_member()
    comes_back(job, 1, RoundId(1, 1))
    assert silent(job) == []


def test_nor_is_any_of_several_pods_that_may_be_the_member() -> None:
    assert silent(a_round_without_one_member(pods=5)) == []


def test_nor_is_a_pod_that_has_a_problem_of_its_own() -> None:
    job = leader_between_rounds(running(3, min_members=1), last_call_timeout=3.0)
    job.expect({**job.pods, 1: expected(1, problem="ImagePullBackOff")})
    comes_back(job, 0, RoundId(1, 1))
    job.waits(2, incarnation="its container was started again")
    job.passes(5)
    assert (job.runs, silent(job)) == (True, [])


def test_one_that_has_left_its_round_is_reported_too_if_it_never_comes() -> None:
    """Its agent may be frozen while its workers still run: nobody else replaces the pod."""
    job = leader_between_rounds(running(3, min_members=1, survive=True))
    job.expect({index: expected(index) for index in range(3)})
    for rank in (0, 2):
        job.hello(rank, round=RoundId(1, 1), rank=rank, size=3, left=(1,), change=1)
    job.passes(12, heard=(0, 2), heard_ages=(3, 3))
    assert (job.runs, silent(job)) == (True, ["uid-1"])
