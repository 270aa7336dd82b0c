"""The moments at which a member counts as lost, what a sleep moves, and what the log says of it."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import Failed, Join, RoundId
from pytorchjob_agent.contract.reasons import EndReason
from pytorchjob_operator.rounds.awaited import unknown_may_connect
from pytorchjob_operator.rounds.decide import decide
from pytorchjob_operator.rounds.failures import MOST_FAILURES
from pytorchjob_operator.rounds.losses import shift_after_sleep
from pytorchjob_operator.rounds.phases import Phase, Rendezvous, Running
from pytorchjob_operator.rounds.state import ConnectionClosed, JobState, JobSynced, MessageReceived, Tick
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import ExpectedPod, Policy, Round
from tests.rounds.story import Job, expected, running

OWN = Round(RoundId(1, 1), (0, 1), started_at=5.0)
ADOPTED = replace(OWN, adopted=True)


@pytest.mark.parametrize(
    ("phase", "gap", "after"),
    [
        pytest.param(Rendezvous(10.0, ""), 2.0, Rendezvous(10.0, ""), id="a pause of just two seconds moves nothing"),
        pytest.param(Rendezvous(10.0, ""), 30.0, Rendezvous(40.0, ""), id="the time to stop and to join"),
        pytest.param(
            Rendezvous(10.0, "", ADOPTED),
            30.0,
            Rendezvous(40.0, "", replace(ADOPTED, started_at=35.0)),
            id="the time to connect of an adopted round that has ended",
        ),
        pytest.param(Rendezvous(10.0, "", OWN), 30.0, Rendezvous(40.0, "", OWN), id="not of one that it formed"),
        pytest.param(
            Running(ADOPTED),
            30.0,
            Running(replace(ADOPTED, started_at=35.0)),
            id="the time to connect of one that runs",
        ),
        pytest.param(Running(OWN), 30.0, Running(OWN), id="a round that it formed lives as long as it lives"),
    ],
)
def test_what_a_sleep_moves(phase: Phase, gap: float, after: Phase) -> None:
    state = JobState(Policy(2, 2), 1, phase, checked_at=20.0)
    assert shift_after_sleep(state, 20.0 + gap) == replace(state, phase=after, checked_at=20.0 + gap)


def test_the_reasons_of_a_lost_connection_and_of_a_sync() -> None:
    job = running(3)
    assert decide(job.state, ConnectionClosed(99, 1), job.now).reason == "an old connection ended"
    lost = decide(job.state, ConnectionClosed(job.links[1], 1), job.now)
    assert lost.reason == "pod-1 has lost its connection"
    assert decide(job.state, JobSynced(job.policy, job.pods), job.now).reason == "the job has 3 pods"


def test_former_pods_are_remembered_and_present_ones_are_not_taken_for_former_ones() -> None:
    job = Job(3)
    job.expect()
    assert job.state.former_uids == {}
    for uid in ("uid-new", "uid-newer"):
        job.expect({**job.pods, 1: expected(1, uid)})
    assert job.state.former_uids == {1: ("uid-1", "uid-new")}
    job.expect({0: expected(0, ""), 1: expected(1, "")})
    job.expect()
    assert job.state.former_uids[1][-1] == "uid-newer", "a pod without a uid is nothing to remember"


def test_a_sync_that_changes_nothing_tells_spares_nothing() -> None:
    job = Job(3, min_members=1, max_members=2)
    job.waits(0, 1, 2)
    before = job.kinds(2)
    job.expect()
    assert job.kinds(2) == before


def test_a_member_without_a_connection_stays_as_long_as_its_pod() -> None:
    job = running(3, min_members=2)
    job.breaks(1)
    job.expect()
    assert job.runs
    assert 1 in job.state.members


@pytest.mark.parametrize(
    ("uid", "kept"),
    [
        pytest.param("uid-1", True, id="its pod is there: the operator may replace it"),
        pytest.param("uid-new", False, id="another pod has its place"),
    ],
)
def test_an_agent_that_fell_silent_is_kept_with_its_pod(uid: str, kept: bool) -> None:
    job = running(3, min_members=2)
    job.expect({**job.pods, 1: expected(1, uid)})
    job.passes(6, silent=[1])
    assert (1 in job.state.silent) is kept


def test_a_member_whose_pod_is_gone_has_half_the_time_to_reconnect() -> None:
    job = running(3, min_members=2)
    job.expect({0: job.pods[0], 2: job.pods[2]})
    job.breaks(1)
    job.passes(1, silent=[1])
    assert job.runs
    job.passes(0.25, silent=[1])
    assert not job.runs


def test_a_member_whose_pod_terminates_has_the_usual_time_to_reconnect_and_trains_on() -> None:
    job = running(3, min_members=2)
    job.expect({0: job.pods[0], 2: job.pods[2]}, 1)
    job.breaks(1)
    job.expect(job.pods, 1)
    job.passes(2.25, silent=[1])
    assert job.runs
    job.hello(1, round=job.round, rank=1, size=3)
    job.passes(5)
    assert (job.runs, job.round) == (True, RoundId(1, 1))


@pytest.mark.parametrize(
    ("heard", "now", "lost"),
    [
        pytest.param(0.25, 2.5, False, id="a moment after its connection ended"),
        pytest.param(0.1875, 2.5, True, id="so soon after that it may have been on its way"),
        pytest.param(0.2, 2.5, True, id="just as long as a report may be on its way"),
        pytest.param(0.25, 3.0, False, id="just now"),
        pytest.param(0.25, 3.25, True, id="too long ago"),
    ],
)
def test_a_member_without_a_connection_lives_if_a_peer_has_heard_it(heard: float, now: float, lost: bool) -> None:
    job = running(3, min_members=2)
    job.breaks(1)
    job.passes(2.25, silent=[1])
    members = {**job.state.members, 1: replace(job.state.members[1], peer_heard_at=1000.0 + heard)}
    decision = decide(replace(job.state, members=members), Tick(), 1000.0 + now)
    assert (1 not in decision.state.members) is lost


@pytest.mark.parametrize(
    ("pods", "trains"),
    [
        pytest.param({}, True, id="both pods run"),
        pytest.param({0: expected(0, problem="Evicted")}, False, id="a pod does not run"),
        pytest.param({0: expected(0, "uid-new")}, False, id="a pod was replaced"),
        pytest.param({0: None}, False, id="a pod is gone"),
    ],
)
def test_a_group_that_no_one_hears_may_train_as_long_as_its_pods_run(
    pods: dict[int, ExpectedPod | None], trains: bool
) -> None:
    job = Job(4, min_members=1, max_members=2)
    job.waits(0, 1, 2, 3)
    job.passes(20, silent=[0, 1])
    job.expect({index: pod for index, pod in {**job.pods, **pods}.items() if pod is not None})
    job.passes(1, silent=[0, 1])
    assert job.runs is not trains


@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_of_the_last_round_that_has_succeeded_ends_the_job(index: int) -> None:
    job = running(2)
    job.ends(1)
    job.passes(6, silent=[0])
    assert not job.runs
    job.says(1, Join(20001, job.round))
    job.expect({**job.pods, index: expected(index, succeeded=True)})
    assert job.end is not None
    assert job.end.reason is EndReason.SUCCEEDED
    assert job.heard(1).kind == "finished"


def test_a_pod_that_has_succeeded_outside_of_the_last_round_does_not_end_the_job() -> None:
    job = Job(3, min_members=1, max_members=2)
    job.waits(0, 1, 2)
    job.fails(0)
    job.expect({**job.pods, 2: expected(2, succeeded=True)})
    assert job.end is None


@pytest.mark.parametrize(
    ("ranks", "pods", "waiting", "may"),
    [
        pytest.param((0, 1), 2, [], False, id="all are known"),
        pytest.param((0, None), 2, [], True, id="one is unknown, and one pod is left"),
        pytest.param((0, None), 1, [], False, id="one is unknown, and no pod is left"),
        pytest.param((0, None), 0, [], True, id="one is unknown, and the pods are too"),
        pytest.param((0, None), 2, [1], False, id="the pod that is left waits for a round"),
        pytest.param((0, None), 3, [1], True, id="another pod is left"),
        pytest.param((0, None, None), 3, [1], False, id="two are unknown, and one pod is left"),
        pytest.param((0, None, None), 4, [1], True, id="two are unknown, and two pods are left"),
        pytest.param((0, None), -2, [], False, id="the unknown one has succeeded"),
        pytest.param((0, None, None), -3, [], True, id="one of two has succeeded, and one pod is left"),
        pytest.param((0, None, None), -2, [], False, id="one of two has succeeded, and no pod is left"),
    ],
)
def test_whether_unknown_members_may_connect(
    ranks: tuple[int | None, ...], pods: int, waiting: list[int], may: bool
) -> None:
    """A negative number of pods: the last one has succeeded."""
    job = Job(4, min_members=4)
    job.waits(*waiting)
    expectations = {index: expected(index, succeeded=pods < 0 and index == -pods - 1) for index in range(abs(pods))}
    transition = Transition(replace(job.state, pods=expectations), job.now)
    assert unknown_may_connect(transition, replace(OWN, ranks=ranks)) is may


def test_failures_beyond_the_most_are_not_stored() -> None:
    job = running(2)
    job.fails(0)
    phase = job.state.phase
    assert isinstance(phase, Rendezvous)
    many = replace(job.state, phase=replace(phase, failures=phase.failures * MOST_FAILURES))
    late = MessageReceived(job.links[1], 1, Failed(RoundId(1, 1), 1, 0, 1, "late"))
    assert decide(many, late, job.now).reason == "pod-1 reports a failure too many"
