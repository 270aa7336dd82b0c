"""Who is gone, who is only out of sight, and how soon that is known."""

import pytest

from pytorchjob_agent.contract.messages import Heartbeat, RoundId, Terminating
from pytorchjob_operator.rounds.state import Tick
from pytorchjob_operator.rounds.summary import summarize
from tests.rounds.story import Job, another_leader, expected, running, stopped


@pytest.mark.parametrize(
    ("seconds", "over"), [pytest.param(2.25, False, id="not yet"), pytest.param(2.5, True, id="now")]
)
def test_a_member_whose_connection_is_lost_may_take_two_seconds_to_come_back(seconds: float, over: bool) -> None:
    job = running(3, min_members=2)
    job.breaks(1)
    job.passes(seconds, silent=[1])
    assert job.runs is not over
    assert ("restart" in job.kinds(0)) is over


def test_who_comes_back_in_time_goes_on_as_if_nothing_had_been() -> None:
    job = running(3)
    job.breaks(1)
    job.passes(2, silent=[1])
    job.hello(1, round=job.round, rank=1, size=3)
    job.passes(10)
    assert job.runs
    assert job.kinds(1) == ["welcome"]
    assert job.round == RoundId(1, 1)


def test_a_silent_node_is_found_by_its_lease() -> None:
    job = running(3, min_members=2)
    job.passes(4, silent=[1])
    assert job.runs
    job.passes(2, silent=[1])
    assert job.heard(0).kind == "restart"
    assert "pod-1 sent nothing for" in job.heard(0).reason
    assert job.links[1] in job.closed


def test_who_comes_back_too_late_is_told_to_start_anew() -> None:
    job = running(3, min_members=2)
    before = job.round
    job.passes(6, silent=[1])
    stopped(job, 0, 2)
    job.passes(1, silent=[1])
    assert job.ranks == (0, 2)
    job.hello(1, round=before, rank=1, size=3)
    assert job.heard(1).kind == "restart"
    assert job.heard(1).round == RoundId(1, 2)
    job.joins(1)
    job.passes(1)
    stopped(job, 0, 2)
    assert job.ranks == (0, 1, 2)
    assert job.state.restarts == 0


def test_a_member_that_its_peers_hear_is_cut_off_and_not_lost() -> None:
    job = running(3, min_members=2)
    job.breaks(1)
    job.passes(20, silent=[1], heard=(0, 1, 2), heard_ages=(3, 9, 3))
    assert job.runs
    assert "pod-1 cannot reach the coordinator, but its peers hear it" in (job.problem("CoordinatorUnreachable") or "")
    job.hello(1, round=job.round, rank=1, size=3)
    job.passes(1)
    assert job.problem("CoordinatorUnreachable") is None


@pytest.mark.parametrize(
    ("closed", "lost"),
    [pytest.param(True, 2.5, id="its connection ended"), pytest.param(False, 5.0, id="it is silent")],
)
def test_reports_from_before_a_death_do_not_make_a_dead_member_look_alive(closed: bool, lost: float) -> None:
    """Its peers report it for two seconds after its death, each time with the age of its last sign of life."""
    job = running(3, min_members=2)
    job.passes(1, heard=(0, 1, 2), heard_ages=(3, 3, 3))
    if closed:
        job.breaks(1)
    for quarter in range(1, round(lost * 4)):
        age = quarter * 2.5 + (3 if closed else -7)  # without a closed connection it may have lived a second longer
        heard = (0, 1, 2) if age <= 20 else (0, 2)
        job.passes(0.25, silent=[1], heard=heard, heard_ages=(3, max(int(age), 1), 3)[: len(heard)])
        for index in (0, 2):
            job.says(index, Heartbeat(heard=heard, heard_ages=(3, max(int(age), 1), 3)[: len(heard)]))
        assert job.runs, f"{quarter / 4} s"
        assert job.problem("CoordinatorUnreachable") is None
    job.passes(0.5, silent=[1])
    assert not job.runs


def test_what_a_member_heard_in_an_earlier_round_keeps_no_dead_member_of_the_next_one() -> None:
    """Its last heartbeat before the new round names rank 1: pod-1, which lived. Now rank 1 is a spare that is dead."""
    job = Job(3, min_members=2, max_members=2)
    job.waits(0, 1, 2)
    job.passes(1)
    assert job.ranks == (0, 1)
    first = job.round
    job.goes(1)
    job.expect({0: expected(0), 2: expected(2)})
    stopped(job, 0)
    assert job.ranks == (0, 2)
    job.breaks(2)
    for _ in range(8):
        job.says(0, Heartbeat(heard=(1,), heard_ages=(1,), heard_in=first))
        job.passes(0.25, silent=[2])
        assert job.problem("CoordinatorUnreachable") is None
    job.passes(0.5, silent=[2])
    assert not job.runs


def test_it_is_lost_once_its_peers_hear_it_no_more() -> None:
    job = running(3, min_members=2)
    job.breaks(1)
    job.passes(10, silent=[1], heard=(0, 1, 2), heard_ages=(3, 10, 3))
    job.passes(4, silent=[1])
    assert job.heard(0).kind == "restart"


@pytest.mark.parametrize(
    "broken", [pytest.param((), id="all are silent"), pytest.param((0, 1, 2), id="all connections break")]
)
def test_where_nobody_is_heard_at_all_nobody_is_given_up(broken: tuple[int, ...]) -> None:
    job = running(3, min_members=1)
    job.breaks(*broken)
    job.passes(60, silent=[0, 1, 2])
    assert job.runs
    assert "the coordinator hears no agent of this job" in (job.problem("CoordinatorUnreachable") or "")
    for index in (2, 0, 1):
        job.now += 0.5
        job.hello(index, round=RoundId(1, 1), rank=index, size=3)
        job.feed(Tick())
    job.passes(5)
    assert job.runs
    assert job.round == RoundId(1, 1)
    assert job.problem("CoordinatorUnreachable") is None


def test_after_that_who_does_not_follow_the_first_is_lost() -> None:
    job = running(3, min_members=1)
    job.breaks(0, 1, 2)
    job.passes(30, silent=[0, 1, 2])
    job.hello(0, round=RoundId(1, 1), rank=0, size=3)
    job.passes(2.75, silent=[1, 2])
    assert job.heard(0).kind == "restart"


def test_a_coordinator_that_stood_still_blames_nobody() -> None:
    job = running(3)
    job.passes(2)
    job.now += 30
    job.feed(Tick())
    job.passes(3)
    assert job.runs


def test_a_pod_that_is_no_more_by_the_operators_word_is_not_waited_for() -> None:
    job = running(3, min_members=2)
    job.breaks(2)
    job.expect({index: job.pods[index] for index in (0, 1)})
    assert job.heard(0).kind == "restart"
    assert "pod-2 was deleted" in job.heard(0).reason
    stopped(job, 0, 1)
    assert job.ranks == (0, 1)


def test_a_replaced_pod_that_is_silent_is_not_waited_for() -> None:
    job = running(2)
    job.breaks(1)
    job.expect({**job.pods, 1: expected(1, "uid-new")})
    assert job.heard(0).kind == "restart"


def test_the_word_of_the_operator_does_not_end_a_pod_that_talks() -> None:
    job = running(2)
    job.expect({0: job.pods[0]})
    job.passes(5)
    assert job.runs


# Agents that are silent although their pods are well.


def silent(job: Job) -> dict[str, float]:
    return {pod.uid: pod.seconds for pod in summarize(job.state, job.now).silent}


def test_an_agent_that_is_frozen_is_reported_with_the_time_of_its_silence() -> None:
    job = running(3)
    job.passes(60, silent=[1])
    assert silent(job) == {"uid-1": pytest.approx(60.0, abs=1.0)}
    assert "pod-1 (its agent has sent nothing for" in (job.problem("RendezvousWaiting") or "")


@pytest.mark.parametrize(
    "what",
    [
        "it comes back",
        "its pod is replaced",
        "its pod is gone",
        "its peers hear it",
        "no agent is heard",
        "it has left",
    ],
)
def test_it_is_not_reported_if(what: str) -> None:
    job = running(3, min_members=2)
    if what == "it has left":
        job.goes(1)
        job.breaks(1)
    heard = {"heard": (0, 1, 2), "heard_ages": (3, 3, 3)} if what == "its peers hear it" else {}
    job.passes(20, silent=[0, 1, 2] if what == "no agent is heard" else [1], **heard)
    if what == "it comes back":
        job.waits(1)
    if what == "its pod is replaced":
        job.expect({**job.pods, 1: expected(1, "uid-new")})
    if what == "its pod is gone":
        job.expect({0: job.pods[0], 2: job.pods[2]})
    assert silent(job) == {}


def test_a_new_leader_reports_the_one_pod_that_must_be_the_missing_member() -> None:
    job = another_leader(running(3))
    for rank in (0, 2):
        job.hello(rank, round=RoundId(1, 1), rank=rank, size=3)
    job.passes(9)
    assert silent(job) == {}
    job.passes(51, silent=[1])
    assert silent(job) == {"uid-1": pytest.approx(60.0, abs=1.0)}


def test_a_new_leader_reports_it_too_if_another_member_was_replaced_meanwhile() -> None:
    job = another_leader(running(3))
    job.hello(0, round=RoundId(1, 1), rank=0, size=3)
    job.waits(2, incarnation="second")
    job.passes(60, silent=[1])
    assert silent(job) == {"uid-1": pytest.approx(60.0, abs=1.0)}


def test_of_two_pods_that_may_be_the_missing_member_a_new_leader_reports_none() -> None:
    job = another_leader(running(3, min_members=2))
    job.expect({**job.pods, 3: expected(3)})
    for rank in (0, 2):
        job.hello(rank, round=RoundId(1, 1), rank=rank, size=3)
    job.passes(60, silent=[1, 3])
    assert silent(job) == {}


def test_the_coordinators_own_sleep_is_no_silence_of_an_agent() -> None:
    job = running(3)
    job.passes(10, silent=[1])
    job.now += 100
    job.feed(Tick())
    job.says(0, Heartbeat())
    assert silent(job) == {"uid-1": pytest.approx(10.0, abs=1.0)}


# Rounds that another leader opened.


def test_a_new_leader_learns_the_round_from_its_members() -> None:
    job = another_leader(running(3))
    for rank in (2, 0, 1):
        job.hello(rank, round=RoundId(1, 1), rank=rank, size=3, restarts=2)
        assert job.kinds(rank) == ["welcome"]
    job.passes(30)
    assert job.ranks == (0, 1, 2)
    assert job.runs
    assert job.state.restarts == 2


def test_it_opens_later_rounds_than_the_old_one_did() -> None:
    job = another_leader(running(2))
    for rank in (0, 1):
        job.hello(rank, round=RoundId(1, 1), rank=rank, size=2)
    job.fails(0)
    stopped(job, 0, 1)
    assert job.round == RoundId(2, 1)


@pytest.mark.parametrize(
    ("seconds", "over"), [pytest.param(9.5, False, id="not yet"), pytest.param(10.5, True, id="now")]
)
def test_whoever_does_not_come_to_a_new_leader_is_given_up(seconds: float, over: bool) -> None:
    job = another_leader(running(3, min_members=2))
    for rank in (0, 1):
        job.hello(rank, round=RoundId(1, 1), rank=rank, size=3)
    job.passes(seconds)
    assert job.runs is not over
    if over:
        assert "node rank 2 of round 1.1 did not reconnect" in job.heard(0).reason


def test_a_replica_that_was_started_anew_cannot_be_the_missing_rank() -> None:
    job = another_leader(running(2))
    job.hello(0, round=RoundId(1, 1), rank=0, size=2)
    job.waits(1, incarnation="second")
    job.passes(0.5)
    assert job.heard(0).kind == "restart", "nobody else is left who could be rank 1"


def test_a_done_pod_may_be_the_missing_rank() -> None:
    job = another_leader(running(2))
    job.expect({**job.pods, 1: expected(1, succeeded=True)})
    job.hello(0, round=RoundId(1, 1), rank=0, size=2)
    job.passes(20)
    assert job.runs
    job.ends(0)
    assert job.heard(0).kind == "finished"


def test_one_done_pod_is_not_two_ranks() -> None:
    job = another_leader(running(3))
    job.expect({**job.pods, 1: expected(1, succeeded=True)})
    job.hello(0, round=RoundId(1, 1), rank=0, size=3)
    job.ends(0)
    assert job.end is None


def test_a_coordinator_that_slept_gives_members_the_usual_time_to_stop_and_to_be_lost() -> None:
    job = running(3, min_members=2)
    job.passes(1, silent=[1])
    job.fails(0, "DistNetworkError: Connection closed by peer")
    job.joins(0, 2)
    job.now += 11
    job.feed(Tick())
    assert job.state.restarts == 0, "member 1 may still stop its workers, or be lost"
    job.passes(6, silent=[1])
    assert (job.runs, job.ranks, job.state.restarts) == (True, (0, 2), 0)


def test_a_coordinator_that_slept_gives_the_members_of_an_adopted_round_the_usual_time_to_connect() -> None:
    before = running(3)
    job = another_leader(before)
    job.hello(0, round=before.round, rank=0, size=3)
    job.now += 11
    job.feed(Tick())
    assert job.runs
    job.passes(11, silent=[1, 2])
    assert not job.runs


def test_a_terminating_pod_that_still_saves_may_reconnect() -> None:
    job = running(2, min_members=1)
    job.passes(1, cooperative=True)
    job.expect({0: job.pods[0]})
    job.goes(1, seconds=20)
    job.breaks(1)
    job.expect({0: job.pods[0]})
    job.passes(1, silent=[1], cooperative=True)
    assert job.runs
    assert job.hello(1, round=job.round, rank=1, size=2).kind == "checkpoint"


def test_an_agent_is_told_once_that_its_pod_terminates() -> None:
    """SIGTERM may not reach it: a shell as the container's first process keeps it to itself."""
    job = running(3, min_members=1)
    job.goes(2, seconds=20)
    for _ in range(2):
        job.expect({0: job.pods[0]}, 1, 2)
    heard = {index: sum(isinstance(message, Terminating) for message in job.told[index]) for index in range(3)}
    assert heard == {0: 0, 1: 1, 2: 0}, "replica 2 goes already"


def test_a_terminating_pod_that_does_not_reconnect_is_lost() -> None:
    job = running(2, min_members=1)
    job.passes(1, cooperative=True)
    job.expect({0: job.pods[0]})
    job.goes(1, seconds=20)
    job.breaks(1)
    job.passes(2, silent=[1], cooperative=True)
    assert job.heard(0).kind == "restart"
