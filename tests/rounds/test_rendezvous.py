"""Between two rounds: who is waited for, when there are enough, which ranks they get, and what those who wait hear."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import Heartbeat, Join, RoundId
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.coordinator_report import PhaseName
from pytorchjob_operator.rounds.summary import summarize
from tests.rounds.story import Job, another_leader, expected, running, stopped


def test_a_fixed_job_starts_when_all_are_here() -> None:
    job = Job(3)
    job.waits(2, 0)
    job.passes(60)
    assert job.round is None
    job.waits(1)
    assert job.ranks == (0, 1, 2)
    assert job.round == RoundId(1, 1)


def test_ranks_follow_the_replicas_whatever_number_of_workers_each_has() -> None:
    job = Job(3)
    for index, nproc in ((2, 1), (0, 4), (1, 2)):
        job.waits(index, nproc=nproc)
    told = [job.assigned(index) for index in range(3)]
    assert [(assigned.rank, assigned.first_rank, assigned.world_size, assigned.size) for assigned in told] == [
        (0, 0, 7, 3),
        (1, 4, 7, 3),
        (2, 6, 7, 3),
    ]
    assert {(assigned.master_address, assigned.master_port, assigned.restarts) for assigned in told} == {
        ("10.0.0.0", 20000, 0)
    }
    assert [assigned.neighbour for assigned in told] == ["10.0.0.1:20001", "10.0.0.2:20002", "10.0.0.0:20000"]


@pytest.mark.parametrize(
    ("here", "seconds", "size"),
    [
        pytest.param((0, 1), 29.0, 0, id="an elastic job waits for the others at first"),
        pytest.param((0, 1), 30.0, 2, id="and starts without them after the last call"),
        pytest.param((0,), 60.0, 0, id="too few are too few"),
        pytest.param((0, 1, 2, 3), 0.0, 4, id="nobody waits once all are here"),
    ],
)
def test_the_first_round_of_an_elastic_job(here: tuple[int, ...], seconds: float, size: int) -> None:
    job = Job(4, min_members=2)
    job.waits(*here)
    job.passes(seconds)
    assert len(job.ranks) == size


def test_nobody_waits_for_a_pod_that_cannot_run() -> None:
    job = Job(3, min_members=2)
    job.expect({**job.pods, 2: expected(2, problem="ImagePullBackOff")})
    job.waits(0, 1)
    assert job.ranks == (0, 1)


def test_a_later_round_waits_no_longer_than_the_grace() -> None:
    job = running(3, min_members=2)
    job.breaks(2)
    job.fails(0)
    job.joins(0)
    stopped(job, 1)
    assert not job.runs, "it may come back at once"
    job.passes(1.0, silent=[2])
    assert job.ranks == (0, 1)


def test_a_later_round_does_not_wait_for_a_pod_that_has_just_been_made() -> None:
    job = running(3, min_members=2)
    job.expect({**job.pods, 2: expected(2, "uid-new")})
    job.breaks(2)
    job.passes(2.5, silent=[2])
    stopped(job, 0, 1)
    assert job.ranks == (0, 1)


def test_spares_wait_and_hear_why() -> None:
    job = Job(3, min_members=1, max_members=2)
    job.waits(0, 2, 1)
    assert job.ranks == (0, 1)
    assert "waits as a spare" in job.heard(2).reason


def test_members_of_the_last_round_go_before_spares() -> None:
    job = Job(3, min_members=1, max_members=2)
    job.waits(1, 2)
    job.passes(30)
    assert job.ranks == (1, 2)
    job.waits(0)
    job.fails(1)
    stopped(job, 1, 2)
    job.passes(1)
    assert job.ranks == (1, 2)


def test_a_spare_takes_the_place_of_who_is_lost() -> None:
    job = Job(3, min_members=2, max_members=2)
    job.waits(0, 1, 2)
    assert job.ranks == (0, 1)
    job.breaks(0)
    job.passes(2.5, silent=[0])
    stopped(job, 1)
    assert job.ranks == (1, 2)
    assert job.state.restarts == 0


def test_who_waits_hears_what_for_soon_and_the_job_has_a_problem() -> None:
    job = Job(3)
    job.waits(0, 1)
    job.passes(5)
    words = "2 of 3 members are ready; waiting for pod-2 (its agent has not connected)"
    assert job.heard(0).reason == job.heard(1).reason == job.problem("RendezvousWaiting") == words
    job.waits(2)
    assert job.problem("RendezvousWaiting") is None


def test_a_round_that_never_fills_ends_with_a_reason() -> None:
    job = Job(2, join_timeout=20.0)
    job.waits(0)
    job.passes(20)
    stop = job.heard(0)
    assert (stop.kind, stop.exit_code, stop.reason) == ("stop", ExitCode.RENDEZVOUS, "RendezvousTimeout")
    assert "the rendezvous timed out after 20 s" in (job.problem("RendezvousWaiting") or "")
    job.breaks(0)
    job.waits(0, 1, incarnation="second")
    assert job.runs, "who is started again may try again"


def test_a_member_that_was_told_of_the_timeout_is_not_taken_into_a_round() -> None:
    job = Job(2, join_timeout=20.0)
    job.waits(0)
    job.passes(20)
    job.waits(1)
    job.passes(1, silent=[0])
    assert not job.runs


@pytest.mark.parametrize("least", [1, 2])
def test_a_member_that_does_not_stop_its_workers_is_named(least: int) -> None:
    job = running(2, min_members=least)
    job.fails(0)
    job.joins(0)
    job.passes(12)
    if least == 2:
        assert "pod-1 (it has not stopped its workers yet)" in job.heard(0).reason
    else:
        assert job.ranks == (0,)


def test_a_group_that_may_still_train_is_not_replaced_by_others() -> None:
    job = Job(4, min_members=1, max_members=2)
    job.waits(0, 1, 2, 3)
    assert job.ranks == (0, 1)
    job.passes(20, silent=[0, 1])
    assert not job.runs
    assert "round 1.1 may still train" in job.heard(2).reason
    job.expect({**job.pods, 0: expected(0, "uid-new")})
    job.passes(1, silent=[0, 1])
    assert job.ranks == (2, 3)


@pytest.mark.parametrize(
    ("returns", "ranks"),
    [
        pytest.param("", None, id="and no word of them"),
        pytest.param("the pods terminate", None, id="as long as their pods terminate"),
        pytest.param("a member", (2, 3), id="until one is back, and has agreed to nothing"),
        pytest.param("another pod", (2, 3), id="until one has another pod, so that they cannot agree"),
    ],
)
def test_members_that_have_stopped_and_are_out_of_reach_may_agree_to_go_on(
    returns: str, ranks: tuple[int, ...] | None
) -> None:
    job = Job(4, min_members=1, max_members=2)
    job.waits(0, 1, 2, 3)
    job.fails(0)
    job.joins(0, 1)
    assert job.ranks == (0, 1)
    job.fails(0)
    job.joins(0)
    for index in (0, 1):
        job.breaks(index)
    job.passes(20, silent=[0, 1])
    assert not job.runs
    assert "round 1.2 may still train" in job.heard(2).reason
    if returns == "a member":
        job.waits(0)
    if returns == "another pod":
        job.expect({**job.pods, 0: expected(0, "uid-new")})
    if returns == "the pods terminate":
        job.expect({2: job.pods[2], 3: job.pods[3]}, 0, 1)
    job.passes(2, silent=[0, 1] if returns != "a member" else [1])
    assert (job.ranks if job.runs else None) == ranks
    if returns == "a member":
        assert job.heard(0).round == job.round, "it hears that it may not agree any more"


def test_a_member_that_has_left_agrees_to_nothing() -> None:
    job = Job(2, min_members=1, max_members=1)
    job.waits(0, 1)
    job.goes(0)
    job.joins(0)
    job.breaks(0)
    job.passes(1, silent=[0])
    assert job.ranks == (1,)


def test_a_terminating_pod_of_a_smaller_job_trains_alone_until_its_agent_has_ended() -> None:
    job = Job(2, min_members=1)
    job.waits(0)
    job.passes(30, cooperative=True)
    job.waits(1)
    job.expect({1: job.pods[1]})
    job.goes(0, seconds=20)
    job.says(0, Heartbeat(cooperative=True, answered=1))
    assert job.heard(0).exit_code == 143
    job.passes(6)
    assert not job.runs
    assert "round 1.1 may still train: its members have not stopped their workers yet" in job.heard(1).reason
    job.breaks(0)
    job.passes(1, silent=[0])
    assert job.ranks == (1,)


@pytest.mark.parametrize("broken", [False, True], ids=["its agent is frozen", "its connection broke"])
def test_an_agent_that_is_not_heard_may_train_until_its_terminating_pod_is_gone(broken: bool) -> None:
    job = Job(2, min_members=1, max_members=1)
    job.waits(0, 1)
    assert job.ranks == (0,)
    job.expect({1: job.pods[1]}, 0)
    if broken:
        job.breaks(0)
    job.passes(20, silent=[0])
    assert not job.runs
    assert "round 1.1 may still train" in job.heard(1).reason
    job.expect()
    job.passes(1, silent=[0])
    assert job.ranks == (1,)


def test_a_pod_that_terminates_ends_no_doubt_but_another_one_that_is_gone_does() -> None:
    job = Job(3, min_members=1, max_members=2)
    job.waits(0, 1, 2)
    job.expect({2: job.pods[2]}, 0)
    job.passes(7, silent=[0, 1])
    assert job.ranks == (2,), "without member 1 member 0 can make no step"


def test_the_former_pod_of_a_replica_that_terminates_is_not_the_members_pod() -> None:
    job = Job(2, min_members=1, max_members=1)
    job.expect({0: expected(0, "uid-of-the-round"), 1: expected(1)})
    job.waits(0, pod_uid="uid-of-the-round")
    job.waits(1)
    job.passes(30)
    assert job.ranks == (0,)
    job.expect({1: job.pods[1]}, 0)
    job.passes(7, silent=[0])
    assert job.ranks == (1,)


@pytest.mark.parametrize(
    ("known", "seconds"),
    [
        pytest.param(False, 30, id="until the last call is over, because its agent may train a round"),
        pytest.param(True, 0, id="not if its agent has connected: it has reported its round"),
    ],
)
def test_a_new_leader_waits_for_the_agent_in_a_terminating_pod(known: bool, seconds: int) -> None:
    job = another_leader(Job(3, min_members=1))
    if known:
        job.hello(0)
        job.goes(0)
    job.expect({1: job.pods[1], 2: job.pods[2]}, 0)
    job.waits(1, 2)
    for _ in range(seconds):
        assert not job.runs
        job.passes(1, silent=[0])
    assert job.ranks == (1, 2)


@pytest.mark.parametrize(
    ("last_call", "trained", "seconds"),
    [
        pytest.param(3.0, True, 10, id="as long as for a round that it knows"),
        pytest.param(15.0, True, 15, id="or for the last call, if that is longer"),
        pytest.param(3.0, False, 3, id="a new job begins after its last call"),
    ],
)
def test_a_new_leader_waits_for_agents_that_may_train_a_round(last_call: float, trained: bool, seconds: int) -> None:
    job = another_leader(Job(2, min_members=1, last_call_timeout=last_call))
    job.expect(trained=trained)
    job.waits(1)
    for _ in range(seconds):
        assert not job.runs
        job.passes(1, silent=[0])
    assert job.ranks == (1,)


def test_spares_do_not_start_before_a_running_group_has_come_back_to_a_new_leader() -> None:
    old = Job(4, min_members=1, max_members=2)
    old.waits(0, 1, 2, 3)
    job = another_leader(old)
    job.waits(2, 3)
    job.passes(2)
    assert job.round is None
    for rank in (0, 1):
        job.hello(rank, round=RoundId(1, 1), rank=rank, size=2)
    assert job.runs
    assert job.round == RoundId(1, 1)
    assert "waits as a spare" in job.heard(2).reason


def test_a_leader_whose_epochs_begin_anew_opens_a_later_round_than_any_that_somebody_knows() -> None:
    job = Job(3)
    for index, over in enumerate((RoundId(5, 2), RoundId(5, 3), None)):
        job.hello(index)
        job.says(index, Join(20000 + index, over))
    assert job.round == RoundId(5, 4)


@pytest.mark.parametrize("warns", [True, False])
def test_unequal_versions_are_told_or_end_the_job(warns: bool) -> None:
    job = Job(3)
    for index, torch in enumerate(("2.15.0", "2.15.0", "2.4.1")):
        job.waits(index, versions={"torch": torch}, warnings=warns)
    words = job.problem("UnequalVersions") or ""
    assert words == "torch versions differ: pod-2 has 2.4.1, the others have 2.15; use one image for all replicas"
    assert job.runs is warns
    if not warns:
        assert (job.heard(0).kind, job.heard(0).exit_code) == ("stop", ExitCode.PREFLIGHT)


def test_clocks_that_differ_are_told_and_nothing_more() -> None:
    job = Job(2)
    job.waits(0, clock=5000.0)
    job.passes(1)
    job.waits(1, clock=5031.0)
    assert job.problem("ClocksDiffer") == (
        "the clock of pod-1 is 30 s ahead of pod-0's; synchronize the nodes' clocks (NTP, chrony)"
    )
    assert job.runs


def test_after_a_timeout_the_job_is_stalled_and_does_not_claim_to_run() -> None:
    job = running(2, join_timeout=20.0)
    job.breaks(1)
    job.passes(3, silent=[1])
    job.joins(0)
    job.passes(20, silent=[1])
    assert job.heard(0).kind == "stop"
    job.breaks(0)
    job.passes(10, silent=[0, 1])
    assert summarize(job.state, job.now).phase is PhaseName.STALLED
    assert job.problem("CoordinatorUnreachable") is None
    assert "the rendezvous timed out after 20 s" in (job.problem("RendezvousWaiting") or "")
    job.waits(0, 1, incarnation="second")
    assert job.runs
    assert job.round == RoundId(1, 2)


def test_agents_that_are_gone_before_the_first_round_do_not_make_the_coordinator_unreachable() -> None:
    job = Job(3)
    job.waits(0, 1)
    job.breaks(0, 1)
    job.passes(10, silent=[0, 1])
    assert job.problem("CoordinatorUnreachable") is None
    assert "0 of 3 members are ready" in (job.problem("RendezvousWaiting") or "")


def test_a_round_begins_without_what_its_members_reported_in_the_last_one() -> None:
    job = running(2)
    job.says(0, Heartbeat(step=3, answered=2))
    member = replace(job.state.members[0], peer_heard_at=job.now)
    job.state = replace(job.state, members={**job.state.members, 0: member})
    job.ends(0)
    job.fails(1)
    stopped(job, 0, 1)
    found = job.state.members[0]
    assert (found.step, found.answered, found.done, found.port, found.peer_heard_at) == (None, 0, False, None, None)
