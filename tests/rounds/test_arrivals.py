"""Hellos: whose place it is, and what an agent finds there."""

import pytest

from pytorchjob_agent.contract.messages import Heartbeat, Join, Restart, RoundId
from pytorchjob_operator.rounds.decide import decide
from pytorchjob_operator.rounds.state import MessageReceived
from tests.rounds.story import Job, another_leader, expected, running


def test_another_version_of_the_protocol_is_refused() -> None:
    refused = Job(2).hello(0, version=999)
    assert (refused.kind, refused.again, refused.fenced) == ("refused", False, False)
    assert "protocol version 999" in refused.message


def test_a_pod_that_was_replaced_is_fenced() -> None:
    job = Job(2)
    job.expect({**job.pods, 0: expected(0, "uid-new")})
    refused = job.hello(0, pod_uid="uid-0")
    assert (refused.kind, refused.fenced, refused.again) == ("refused", True, False)
    assert job.hello(0, pod_uid="uid-new").kind == "welcome"


def test_a_pod_that_was_replaced_before_this_leader_came_is_fenced_once_the_new_one_is_in_a_round() -> None:
    before = running(2)
    before.pods = {**before.pods, 0: expected(0, "uid-new")}
    job = another_leader(before)
    old = {"pod_uid": "uid-0", "round": before.round, "rank": 0, "size": 2}
    assert job.hello(0, **old).again
    job.waits(0, pod_uid="uid-new", incarnation="new")
    job.waits(1)
    assert job.runs
    refused = job.hello(0, **old)
    assert (refused.kind, refused.fenced) == ("refused", True)


def test_a_pod_that_the_operator_has_not_told_of_yet_may_try_again() -> None:
    job = Job(2)
    refused = job.hello(0, pod_uid="uid-new")
    assert (refused.kind, refused.fenced, refused.again) == ("refused", False, True)
    job.expect({**job.pods, 0: expected(0, "uid-new")})
    assert job.hello(0, pod_uid="uid-new").kind == "welcome"


def test_two_agents_in_one_pod_the_second_waits_and_the_job_has_a_problem() -> None:
    job = running(2)
    mine = job.links[0]
    refused = job.hello(0, incarnation="second")
    assert (refused.kind, refused.fenced, refused.again) == ("refused", False, True)
    assert "run pytorchjob-agent in only one container of a pod" in (job.problem("DuplicateReplica") or "")
    job.links[0] = mine
    job.passes(61)
    assert job.runs
    assert job.problem("DuplicateReplica") is None


def test_a_container_that_was_started_again_takes_its_place() -> None:
    job = running(2)
    job.breaks(0)
    job.hello(0, incarnation="second")
    assert job.kinds(0)[0] == "welcome"
    assert job.heard(1).kind == "restart"
    assert "pod-0 has restarted" in job.heard(1).reason


def test_the_new_pod_takes_the_place_of_an_old_one_that_still_talks() -> None:
    job = running(2)
    old = job.links[0]
    job.expect({**job.pods, 0: expected(0, "uid-new")})
    job.hello(0, pod_uid="uid-new", incarnation="second")
    assert job.kinds(0)[0] == "welcome"
    assert old in job.closed
    job.joins(0, 1)
    assert job.runs
    assert job.round == RoundId(1, 2)
    assert job.hello(0, pod_uid="uid-0").fenced, "and the old one does not come back"


def test_without_the_operators_word_who_is_there_and_alive_stays() -> None:
    job = running(2)
    mine = job.links[0]
    job.expect({1: job.pods[1]})
    assert job.hello(0, pod_uid="uid-new", incarnation="second").again
    job.links[0] = mine
    job.passes(3)
    assert job.runs


def test_what_is_said_on_an_old_connection_is_not_heard() -> None:
    job = running(2)
    old = job.links[0]
    job.hello(0, round=job.round, rank=0, size=2)
    new, job.links[0] = job.links[0], old
    job.says(0, Join(1))
    job.breaks(0)
    job.links[0] = new
    job.passes(5)
    assert job.runs


def test_who_has_no_workers_although_its_round_runs_ends_it() -> None:
    job = running(2)
    job.hello(0)
    assert job.heard(1).kind == "restart"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        pytest.param({"round": RoundId(1, 1), "rank": 1, "size": 2}, "welcome", id="in its place"),
        pytest.param({"round": RoundId(1, 1), "rank": 0, "size": 2}, "restart", id="another's rank"),
        pytest.param({"round": RoundId(1, 1), "rank": 1, "size": 3}, "restart", id="a round of another size"),
        pytest.param({"round": RoundId(0, 9), "rank": 1, "size": 2}, "restart", id="an old round"),
        pytest.param({"round": RoundId(2, 1), "rank": 2, "size": 2}, "restart", id="a rank that cannot be"),
        pytest.param(
            {"round": RoundId(1, 1), "rank": 2, "size": 2}, "restart", id="a rank that its round does not have"
        ),
    ],
)
def test_an_agent_comes_back_and_says_in_which_round_it_is(said: dict[str, object], kind: str) -> None:
    job = running(2)
    assert job.hello(1, **said).kind == kind


def test_a_round_that_the_members_agreed_on_is_believed() -> None:
    job = running(2)
    for index in (1, 0):
        job.hello(index, round=RoundId(1, 1, 1), rank=index, size=2, restarts=1)
    job.passes(20)
    assert job.runs
    assert job.round == RoundId(1, 1, 1)
    assert job.ranks == (0, 1)
    assert job.state.restarts == 1


def test_members_that_agreed_without_one_who_waits_here_start_again() -> None:
    job = running(2)
    job.hello(0)
    job.joins(0)
    job.hello(1, round=RoundId(1, 1, 1), rank=1, size=2, restarts=1)
    assert [job.heard(index).kind for index in (0, 1)] == ["restart", "restart"]
    job.joins(0)
    assert not job.runs
    job.joins(1)
    assert job.runs
    assert job.round == RoundId(1, 2)


def test_members_of_an_older_round_start_again_once_somebody_comes_from_a_newer_one() -> None:
    job = Job(3, min_members=1, max_members=2)
    older, newer = RoundId(0, 1, 1), RoundId(0, 2)
    job.hello(0, round=older, rank=0, size=2)
    job.hello(1, round=older, rank=1, size=2)
    job.hello(2, round=newer, rank=1, size=2)
    assert job.heard(2).kind == "welcome"
    for index in (0, 1):
        assert job.heard(index) == Restart(newer, "round 0.2 replaces this round")
        job.says(index, Join(20000 + index, newer))
    job.passes(0.5)
    assert job.heard(2).kind == "restart", "nobody is left who could be rank 0 of its round"
    job.says(2, Join(20002, newer))
    assert job.runs


def test_a_member_never_has_two_ranks() -> None:
    job = another_leader(running(3))
    job.hello(0, round=RoundId(1, 1), rank=0, size=3)
    job.hello(0, round=RoundId(1, 1), rank=1, size=3)
    assert job.ranks == (None, 0, None)


def test_who_comes_after_the_end_hears_of_it() -> None:
    job = running(2, max_restarts=0)
    job.fails(0, exit_code=7)
    job.joins(0, 1)
    stop = job.hello(1)
    assert (stop.kind, stop.exit_code, stop.reason) == ("stop", 7, "RestartsUsedUp")


def test_who_was_done_and_comes_after_the_success_is_finished() -> None:
    job = running(2)
    job.breaks(1)
    job.hello(1, round=job.round, rank=1, size=2, done=True)
    job.ends(0)
    assert job.heard(1).kind == "finished"
    assert job.hello(1, round=job.round, rank=1, size=2, done=True).kind == "finished"
    job.breaks(0)
    assert job.hello(0, incarnation="second").exit_code == 0


@pytest.mark.parametrize(
    ("failure", "restarts"),
    [
        pytest.param("DistNetworkError: Connection closed by peer", 0, id="a consequence"),
        pytest.param("ValueError: no", 1, id="a failure of its own"),
    ],
)
def test_what_fails_because_the_assignment_of_another_member_was_lost_costs_nothing(
    failure: str, restarts: int
) -> None:
    job = running(2)
    job.breaks(1)
    job.hello(1)
    job.fails(0, failure)
    job.joins(0, 1)
    assert (job.runs, job.state.restarts) == (True, restarts)


def test_what_is_kept_of_a_member_that_connects_again() -> None:
    job = running(2)
    job.says(0, Heartbeat(step=7, total=9))
    job.ends(0)
    job.breaks(0)
    job.hello(0, round=job.round, rank=0, size=2, clock=1500.0)
    member = job.state.members[0]
    assert (member.step, member.total, member.done) == (7, 9, True)
    assert (member.connection, member.clock_offset) == (job.links[0], 500.0)
    assert (member.lost_at, member.replied_at, member.heard_at) == (None, None, job.now)


def test_a_member_that_connects_again_does_not_wait_before_it_joins_again() -> None:
    job = Job(2)
    job.waits(0)
    job.hello(0)
    assert job.state.members[0].port is None
    assert job.state.members[0].clock_offset is None


def test_a_member_that_is_new_here_may_have_finished_already() -> None:
    job = Job(2)
    job.hello(0, done=True, clock=1007.0)
    assert (job.state.members[0].done, job.state.members[0].clock_offset) == (True, 7.0)


def test_before_the_operator_has_reported_the_pods_every_replica_is_accepted() -> None:
    job = Job(2)
    job.expect({})
    assert job.hello(0).kind == "welcome"


def test_each_message_is_a_sign_of_life() -> None:
    job = Job(2)
    job.hello(0)
    job.now += 1.5
    job.says(0, Join(20000))
    assert job.state.members[0].heard_at == job.now


def test_a_message_on_an_old_connection_changes_nothing() -> None:
    job = Job(2)
    job.hello(0)
    decision = decide(job.state, MessageReceived(99, 0, Join(20000)), job.now)
    assert decision.reason == "a message on an old connection is ignored"
    assert decision.state.members == job.state.members
