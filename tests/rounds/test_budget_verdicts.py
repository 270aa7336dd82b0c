"""What follows from a failed round, for a state that is put together by hand: the edges of each rule."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.collectives import GroupPosition
from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.contract.reasons import EndReason, TrainingReason
from pytorchjob_operator.rounds.budget import FailureVerdict, first_failure, judge, root_cause
from pytorchjob_operator.rounds.phases import LastWorkers, Rendezvous, Running, Waiting
from pytorchjob_operator.rounds.state import JobState
from pytorchjob_operator.rounds.values import Failure, Member, PastRestart, Policy, Round

NOW = 1000.0


def failure(rank: int = 0, at: float = NOW, message: str = "ValueError: no", **more: object) -> Failure:
    return Failure(rank, rank, more.pop("exit_code", 1), message, "", at, **more)  # type: ignore[arg-type]


def stuck(rank: int, number: int, *calls: str) -> Failure:
    """A rank that has begun so many collectives, these at last, and goes on no more."""
    positions = (GroupPosition(rank, "0", number, latest=True, age=30_000, recent=calls),)
    return failure(rank, message="m", hang=True, idle=30.0, positions=positions)


def at_place(failure: Failure, *places: str | None) -> Failure:
    """The same with where the ranks of its pod are."""
    return replace(failure, places={str(rank): place for rank, place in enumerate(places, failure.rank)})


def past(at: float, step: int | None = None, signature: str = "") -> PastRestart:
    return PastRestart(at, TrainingReason.WORKER_FAILED, "", True, signature or f"error at {at}", step)


def state(
    history: list[PastRestart] = [],  # noqa: B006
    lived: float = 5.0,
    step: int | None = None,
    first_step: int | None = None,
    **policy: object,
) -> JobState:
    """A job whose round began `lived` seconds ago."""
    members = {index: Member(index, f"pod-{index}", "", "first", 1, "", 1, NOW, step=step) for index in (0, 1)}
    round_ = Round(RoundId(1, 1), (0, 1), NOW - lived, first_step=first_step)
    values = Policy(2, 2, **policy)  # type: ignore[arg-type]
    return JobState(values, 1, Running(round_), members=members, history=tuple(history), restarts=len(history))


def verdict(state: JobState, *failures: Failure) -> FailureVerdict:
    return judge(state, failures or (failure(),), NOW)


def reason(state: JobState, *failures: Failure) -> EndReason | None:
    found = verdict(state, *failures).end
    return None if found is None else found.reason


@pytest.mark.parametrize(
    ("failures", "words"),
    [
        pytest.param([failure()], "rank 0 (pod-0) exited with code 1: ValueError: no", id="alone"),
        pytest.param(
            [failure(also=(1,))],
            "rank 0 (pod-0) exited with code 1: ValueError: no; 1 other rank failed too",
            id="with another one",
        ),
        pytest.param([failure(message="", hang=True)], "rank 0 (pod-0) hangs: no message", id="it hangs"),
        pytest.param(
            [failure(message="", hang=True), failure(1, message="", hang=True, waits=True)],
            "rank 0 (pod-0) hangs: no message; 1 other rank waits for it",
            id="another rank waits for it",
        ),
        pytest.param(
            [failure(message="", hang=True, also=(1, 2))],
            "rank 0 (pod-0) hangs: no message; 2 other ranks wait for it",
            id="two ranks wait for it",
        ),
        pytest.param(
            [stuck(0, 3), stuck(1, 4, "barrier")],
            "rank 0 (pod-0) hangs: m; it has not begun barrier, collective 4 of group 0, in which other ranks wait; "
            "1 other rank waits for it",
            id="it has not begun a collective",
        ),
        pytest.param(
            [stuck(0, 4), stuck(1, 3)],
            "rank 1 (pod-1) hangs: m; it has not begun collective 4 of group 0, in which other ranks wait; "
            "1 other rank waits for it",
            id="it has not begun a collective of which no more is known",
        ),
        pytest.param(
            [stuck(0, 4, "barrier"), stuck(1, 4, "all_reduce float32[3]")],
            "rank 1 (pod-1) hangs: m; it has begun all_reduce float32[3] where other ranks have begun barrier, "
            "collective 4 of group 0; 1 other rank waits for it",
            id="it has begun another collective",
        ),
        pytest.param(
            [at_place(stuck(0, 3), "t.py:8 load()"), at_place(stuck(1, 4, "barrier"), "t.py:9 step()")],
            "rank 0 (pod-0) hangs: m; it has not begun barrier, collective 4 of group 0, in which other ranks wait "
            "(t.py:9 step()); 1 other rank waits for it",
            id="the line is known in which the other one waits",
        ),
        pytest.param([failure(7)], "rank 7 (replica 7) exited with code 1: ValueError: no", id="its member is gone"),
    ],
)
def test_a_failure_in_words(failures: list[Failure], words: str) -> None:
    assert first_failure(state(), failures).sentence == words


@pytest.mark.parametrize(
    ("places", "place"),
    [(("t.py:8 load()", "t.py:9 step()"), "t.py:8 load()"), ((None, "t.py:9 step()"), ""), ((), "")],
)
def test_the_place_is_that_of_the_rank_at_fault(places: tuple[str | None, ...], place: str) -> None:
    shown = first_failure(state(), [at_place(stuck(0, 3), *places), stuck(1, 4, "barrier")])
    assert (shown.rank, shown.place) == (0, place)


@pytest.mark.parametrize(
    ("failures", "rank"),
    [
        pytest.param(
            [
                failure(0, 2.0, "", hang=True),
                failure(1, 1.0, "NCCL timeout", errors=("torch.distributed.DistBackendError",)),
            ],
            0,
            id="a hang outweighs an echo",
        ),
        pytest.param(
            [
                failure(0, 2.0, "NCCL timeout", errors=("torch.distributed.DistBackendError",)),
                failure(1, 1.0, "", hang=True, waits=True),
            ],
            0,
            id="an echo outweighs a rank that waits",
        ),
    ],
)
def test_the_cause_among_doubtful_failures(failures: list[Failure], rank: int) -> None:
    assert root_cause(failures).rank == rank


@pytest.mark.parametrize(
    ("hang", "expected"),
    [
        pytest.param(True, TrainingReason.WORKERS_HANG, id="a hang"),
        pytest.param(False, TrainingReason.WORKER_FAILED, id="a crash"),
    ],
)
def test_the_reason_that_is_remembered_and_recorded(hang: bool, expected: TrainingReason) -> None:
    found = verdict(state(), failure(hang=hang))
    assert (found.restart.reason, found.restart.message, found.restart.at) == (expected, found.message, NOW)


def test_the_end_of_a_job_that_hangs_has_an_exit_code_and_its_words() -> None:
    found = verdict(state(max_restarts=0), failure(exit_code=0, hang=True, message=""))
    assert found.end is not None
    assert (found.end.exit_code, found.end.at, found.pause) == (1, NOW, 0.0)
    assert found.message == "rank 0 (pod-0) hangs: no message"
    assert found.end.message == f"{found.message}. The job has no restarts (maxRestarts is 0)"


def test_a_hang_is_not_a_permanent_exit_code_and_a_low_one_is() -> None:
    policy = state(first_retryable_exit_code=128)
    assert reason(policy, failure(exit_code=0, hang=True)) is None
    found = verdict(policy, failure(exit_code=1)).end
    assert found is not None
    assert "Exit codes below 128 are permanent" in found.message


@pytest.mark.parametrize(
    ("times", "most", "ended"),
    [
        pytest.param([NOW - 100], 1, True, id="one just within the window"),
        pytest.param([NOW - 100.1], 1, False, id="one just before it"),
        pytest.param([NOW - 10], 2, False, id="one of two"),
        pytest.param([0.0, 10.0, NOW - 20], 2, False, id="the old ones do not count"),
    ],
)
def test_the_restarts_of_a_window(times: list[float], most: int, ended: bool) -> None:
    found = verdict(state([past(at) for at in times], max_restarts=most, restart_window=100.0)).end
    assert (found is not None) is ended
    if found is not None:
        assert found.message.endswith("The one restart within 100 s is used up")


@pytest.mark.parametrize(
    ("lived", "pause"), [pytest.param(19.9, 1.0, id="a short round"), pytest.param(20.0, 0.0, id="twenty seconds")]
)
def test_a_round_without_reports_that_lived_for_a_while_made_progress(lived: float, pause: float) -> None:
    assert verdict(state([past(NOW - 30)], lived=lived)).pause == pause


@pytest.mark.parametrize(
    ("since", "pause"),
    [
        pytest.param(80.0, 1.0, id="the last failure is as old as it may be"),
        pytest.param(80.1, 0.0, id="it is older: the first of a new row"),
    ],
)
def test_a_pause_remembers_failures_of_a_row(since: float, pause: float) -> None:
    assert verdict(state([past(NOW - since)])).pause == pause


def test_without_a_round_there_was_no_progress() -> None:
    empty = JobState(Policy(2, 2), 1, Waiting(), history=(past(NOW - 10),))
    assert verdict(empty).pause == 1.0


def test_a_member_that_reports_steps_is_believed_from_its_first_failure_on() -> None:
    assert verdict(state([past(NOW - 10)], step=5, first_step=5)).pause == 0.0


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        pytest.param(79.9, EndReason.SAME_ERROR, id="a row of short rounds and pauses"),
        pytest.param(80.0, None, id="one round lived in between"),
    ],
)
def test_the_same_error_without_reports(gap: float, expected: EndReason | None) -> None:
    signature = verdict(state()).restart.signature
    times = [NOW - 40 - gap, NOW - 30 - gap, NOW - 20 - gap, NOW - 20]
    assert reason(state([past(at, signature=signature) for at in times])) == expected


@pytest.mark.parametrize(("limit", "expected"), [(3, EndReason.SAME_ERROR), (4, None)])
def test_the_policy_decides_how_often_the_same_error_may_come_back(limit: int, expected: EndReason | None) -> None:
    signature = verdict(state()).restart.signature
    before = state([past(NOW - 40, signature=signature), past(NOW - 20, signature=signature)])
    assert reason(replace(before, policy=replace(before.policy, early_errors=limit))) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([None, None, None, 5], None, id="the first step of all"),
        pytest.param([0, None, None, None], EndReason.NO_PROGRESS, id="no step beyond the first one"),
        pytest.param([1, 2, 3, 9, 4, 5, 6], EndReason.NO_PROGRESS, id="three that did not get past a step of long ago"),
        pytest.param([5, 7, 3, 3], None, id="the first of the three got further"),
        pytest.param([5, 5, 5], None, id="three at the same step are too few"),
    ],
)
def test_failures_that_get_no_further(steps: list[int | None], expected: EndReason | None) -> None:
    """The last of the steps is that of the round that has failed now."""
    *before, last = steps
    history = [past(NOW - 1000 + 100 * number, step) for number, step in enumerate(before)]
    assert reason(state(history, lived=50, step=last, first_step=last)) == expected


def test_a_round_that_only_a_former_leader_saw_may_have_got_further() -> None:
    known = state([past(NOW - 300, 5), past(NOW - 200, 5), past(NOW - 100, 5)])
    learned = replace(known, phase=Rendezvous(NOW - 1, "", known.round, workers=LastWorkers.STOPPED_LONG_AGO))
    found = verdict(learned)
    assert (found.end, found.restart.step, found.pause) == (None, 6, 0.0)
    assert reason(known) == EndReason.NO_PROGRESS, "this leader saw the round itself"
