"""How often workers may fail, how long the pause is, and what ends a job that cannot be helped."""

from typing import Any

import pytest

from pytorchjob_agent.contract.collectives import GroupPosition
from pytorchjob_agent.contract.first_failure import ENDED_EARLY
from pytorchjob_agent.contract.messages import Done
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_agent.contract.root_cause import CHILD_FAILED
from pytorchjob_operator.rounds.budget import _same_hang, first_failure, may_be_consequence, root_cause
from pytorchjob_operator.rounds.values import Failure, PastRestart
from tests.rounds.story import Job, another_leader, pause_before_restart, running, stopped


def lives(job: Job, seconds: float, message: str, first: int | None, **failed: Any) -> None:
    """A round lives so long, its first step is this one if any, and then it fails; the next one begins if it may."""
    job.passes(seconds, step=first)
    job.fails(0, message, **failed)
    for index in range(len(job.pods)):
        job.joins(index)
    for _ in range(70):
        if job.runs or job.end is not None:
            return
        job.passes(1)


def end(job: Job) -> str | None:
    return None if job.end is None else str(job.end.reason)


@pytest.mark.parametrize(
    ("restarts", "words"),
    [
        (0, "The job has no restarts (maxRestarts is 0)"),
        (1, "The one restart is used up"),
        (3, "All 3 restarts are used up"),
    ],
)
def test_so_many_failures_are_survived_and_not_one_more(restarts: int, words: str) -> None:
    job = running(2, max_restarts=restarts)
    for number in range(restarts):
        lives(job, 2, f"Error {chr(97 + number)}", first=10 * number)
        assert end(job) is None
    lives(job, 2, "another one", first=100, exit_code=7)
    assert end(job) == "RestartsUsedUp"
    assert job.end is not None
    assert job.end.exit_code == 7
    assert words in job.end.message
    assert [job.heard(index).kind for index in (0, 1)] == ["stop", "stop"]


def test_the_budget_outlives_the_leader() -> None:
    old = running(2, max_restarts=1)
    lives(old, 2, "one", first=1)
    job = another_leader(old)
    job.policy = old.policy
    job.expect()
    for rank in (0, 1):
        job.hello(rank, round=old.round, rank=rank, size=2, restarts=1)
    lives(job, 2, "two", first=2)
    assert end(job) == "RestartsUsedUp"


def test_only_the_failures_of_the_window_count() -> None:
    job = running(2, max_restarts=1, restart_window=100.0)
    lives(job, 2, "one", first=10)
    lives(job, 101, "two", first=20)
    assert end(job) is None
    lives(job, 50, "three", first=30)
    assert end(job) == "RestartsUsedUp"


LOST = {"message": "DistNetworkError: lost"}
ABORTED, KILLED = {"exit_code": 134, "message": "aborted"}, {"exit_code": 137, "message": "killed"}
ENDED = f"rank 0 (pod-0) {ENDED_EARLY}; 1 other rank failed too"


@pytest.mark.parametrize("late", [False, True], ids=["known before the failure", "known after it"])
@pytest.mark.parametrize(
    ("failed", "words"),
    [
        pytest.param(LOST, ENDED, id="of a peer that lost it"),
        pytest.param(ABORTED, ENDED, id="of an aborted one"),
        pytest.param({}, "rank 1 (pod-1) exited with code 1: ValueError: no", id="but not of an error elsewhere"),
        pytest.param(KILLED, "rank 1 (pod-1) exited with code 137: killed", id="nor of a kill"),
    ],
)
def test_a_rank_that_ends_early_is_the_cause(late: bool, failed: dict[str, Any], words: str) -> None:
    job = running(2, max_restarts=0)
    if not late:
        job.says(0, Done(job.round))
    job.fails(1, **failed)
    if late:
        job.says(0, Done(job.round))
    job.joins(0)
    job.joins(1)
    assert job.end is not None
    assert job.end.message.startswith(words)


def test_a_pod_tells_that_one_of_its_own_ranks_ended_early() -> None:
    job = running(2, max_restarts=0)
    job.fails(0, ENDED_EARLY, early=True, also=(2,))
    job.fails(1, **LOST)
    job.joins(0)
    job.joins(1)
    assert job.end is not None
    assert job.end.message.startswith(f"rank 0 (pod-0) {ENDED_EARLY}; 2 other ranks failed too")


@pytest.mark.parametrize(
    ("exit_code", "ended"),
    [
        pytest.param(1, True, id="1 is not tried again"),
        pytest.param(127, True, id="nor 127"),
        pytest.param(128, False, id="128 is"),
        pytest.param(137, False, id="a signal is"),
    ],
)
def test_exit_codes_that_are_not_tried_again(exit_code: int, ended: bool) -> None:
    job = running(2, first_retryable_exit_code=128)
    lives(job, 2, "no", first=1, exit_code=exit_code)
    assert end(job) == ("PermanentError" if ended else None)


@pytest.mark.parametrize(
    ("rounds", "reason"),
    [
        pytest.param([(2, None)] * 4, None, id="blind, four times"),
        pytest.param([(2, None)] * 5, "SameErrorAgain", id="blind, five times"),
        pytest.param([(25, None)] * 6, None, id="blind, but each round lived for a while"),
        pytest.param([(2, 5), (2, None), (2, None)], None, id="only two before the first step"),
        pytest.param([(2, 5), (2, None), (2, None), (2, None)], "SameErrorAgain", id="three before the first step"),
        pytest.param([(2, 5), (30, None), (30, None), (30, None)], "SameErrorAgain", id="however long loading takes"),
        pytest.param([(2, 5), (2, 5), (2, 5)], None, id="three at the same step"),
        pytest.param([(2, 5), (2, 5), (2, 5), (2, 5)], "NoProgress", id="three that got no further"),
        pytest.param([(2, 5), (2, 4), (2, 5), (2, 6), (2, 6), (2, 3)], None, id="one got further"),
    ],
)
def test_the_same_error_again_and_again(rounds: list[tuple[float, int | None]], reason: str | None) -> None:
    job = running(2)
    for number, (seconds, first) in enumerate(rounds):
        assert end(job) is None
        lives(job, seconds, f"OSError: no file {number}", first)
    assert end(job) == reason


TRAIN = {"0": "train.py:7 wait()", "1": "train.py:9 <module>"}
OTHER = TRAIN | {"1": "train.py:8 <module>"}
FROZEN: dict[str, str | None] = {"0": None}


@pytest.mark.parametrize(
    ("hangs", "reason"),
    [
        pytest.param([(2, 5, TRAIN)] * 2, None, id="twice"),
        pytest.param([(2, 5, TRAIN)] * 3, "SameHangAgain", id="three times at the same step"),
        pytest.param([(300, None, TRAIN)] * 3, "SameHangAgain", id="without any step"),
        pytest.param([(3700, None, TRAIN)] * 3, None, id="after hours without any report"),
        pytest.param([(2, 5, TRAIN), (2, 6, TRAIN), (2, 7, TRAIN)], None, id="further each time"),
        pytest.param([(2, 5, TRAIN), (2, 5, OTHER), (2, 5, TRAIN)], None, id="elsewhere between"),
        pytest.param([(2, 5, FROZEN)] * 3, "SameHangAgain", id="three times frozen"),
        pytest.param([(2, 5, {})] * 3, None, id="nobody knows where"),
    ],
)
def test_the_same_hang_again_and_again(
    hangs: list[tuple[float, int | None, dict[str, str | None]]], reason: str | None
) -> None:
    job = running(2)
    for number, (seconds, step, places) in enumerate(hangs):
        assert end(job) is None
        lives(job, seconds, f"no progress for {number} s", step, hang=True, places=places)
    assert end(job) == reason


@pytest.mark.parametrize(("seconds", "step", "reason"), [(2, None, "PermanentError"), (2, 5, None), (30, None, None)])
def test_a_wrong_command_line_is_not_tried_again(seconds: float, step: int | None, reason: str | None) -> None:
    job = running(2)
    lives(job, seconds, "train.py: error: unrecognized arguments: --lrr", step, exit_code=2)
    assert end(job) == reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param("ModuleNotFoundError: no", "PermanentError", id="a module that is not in the image"),
        pytest.param("SyntaxError: no", "PermanentError", id="a script that is not Python"),
        pytest.param("OSError: no", None, id="another error"),
        pytest.param("no ImportError", None, id="another error with these words"),
    ],
)
@pytest.mark.parametrize("step", [None, 5])
def test_errors_of_the_code_are_not_tried_again(error: str, reason: str | None, step: int | None) -> None:
    job = running(2)
    lives(job, 2, error, step)
    assert end(job) == reason


def test_other_errors_are_tried_on() -> None:
    job = running(2)
    for number in range(8):
        lives(job, 2, f"Error{chr(97 + number)}", None)
    assert end(job) is None


@pytest.mark.parametrize(
    ("rounds", "pauses"),
    [
        pytest.param([(2, None)] * 4, [0, 1, 2, 4], id="longer and longer while nothing is done"),
        pytest.param([(25, None)] * 3, [0, 0, 0], id="none after a round that lived"),
        pytest.param([(2, 1), (2, 2), (2, 3)], [0, 0, 0], id="none where steps are done"),
        pytest.param([(2, None), (2, None), (25, None), (2, None)], [0, 1, 0, 4], id="it remembers for a while"),
    ],
)
def test_pauses(rounds: list[tuple[float, int | None]], pauses: list[int]) -> None:
    job, seen = running(2), []
    for number, (seconds, first) in enumerate(rounds):
        job.passes(seconds, step=first)
        job.fails(0, f"Error{chr(97 + number)}")
        stopped(job, 0, 1)
        seen.append(pause_before_restart(job, 70))
    assert seen == pauses


def test_who_waits_during_a_pause_hears_of_it() -> None:
    job = running(2)
    for number in range(5):
        lives(job, 2, f"Error{chr(97 + number)}", None)
    job.fails(0, "Errorf")
    stopped(job, 0, 1)
    job.passes(6)
    assert "the next round starts" in job.heard(0).reason


BACKEND, PLAIN = ("torch.distributed.DistBackendError",), ("RuntimeError",)


def failure(rank: int, message: str, at: float, **more: object) -> Failure:
    return Failure(rank, rank, more.pop("exit_code", 1), message, "", at, **more)  # type: ignore[arg-type]


def begun(rank: int, number: int, age: int) -> dict[str, object]:
    """What a failure has of a rank that has begun so many collectives, the last one so many milliseconds ago."""
    return {"positions": (GroupPosition(rank, "0", number, latest=True, age=age),)}


def hung(rank: int, number: int, age: int = 30_000, **more: object) -> Failure:
    return failure(rank, "", 1.0 + rank, hang=True, **begun(rank, number, age), **more)


def aborted(rank: int, number: int, age: int = 30_000) -> Failure:
    return failure(rank, "", 1.0 + rank, exit_code=134, **begun(rank, number, age))


@pytest.mark.parametrize(
    ("failures", "rank"),
    [
        pytest.param([failure(0, "a", 2.0), failure(1, "b", 1.0)], 1, id="the earliest"),
        pytest.param([failure(0, "NCCL timeout", 1.0, errors=BACKEND), failure(1, "b", 2.0)], 1, id="not an echo"),
        pytest.param(
            [failure(0, "reset", 2.0, errors=BACKEND), failure(1, "b", 1.0, errors=("ConnectionResetError",))],
            1,
            id="of echoes the earliest",
        ),
        pytest.param(
            [failure(0, "cannot restore optimizer", 1.0), failure(1, "unrelated follow-up", 5.0)],
            0,
            id="words count for nothing",
        ),
        pytest.param(
            [failure(0, "no GPU", 1.0, errors=BACKEND), failure(1, "no GPU", 1.5, errors=BACKEND)],
            0,
            id="no peer is lost",
        ),
        pytest.param(
            [failure(0, "", 1.0, errors=PLAIN, raised_in="torch.distributed.c10d_logger"), failure(1, "", 2.0)],
            1,
            id="gloo raises a plain error in a collective",
        ),
        pytest.param(
            [failure(0, "", 1.0, errors=PLAIN, raised_in="pytorchjob_collectives"), failure(1, "", 2.0)],
            1,
            id="and in one that the agent times",
        ),
        pytest.param(
            [failure(0, "", 1.0, errors=PLAIN, raised_in="torch.distributed.checkpoint.planner"), failure(1, "", 2.0)],
            0,
            id="a checkpoint is no collective",
        ),
        pytest.param(
            [failure(0, "", 1.0, errors=PLAIN, raised_in="torch.distributed_shapes"), failure(1, "", 2.0)],
            0,
            id="nor is a module with a similar name",
        ),
        pytest.param(
            [failure(0, "", 2.0, errors=("KeyError",)), failure(1, "", 1.0, errors=(*BACKEND, "KeyError"))],
            1,
            id="a collective in the handler of an error is not its cause",
        ),
        pytest.param(
            [failure(0, "", 1.0, errors=("ValueError", *BACKEND)), failure(1, "", 2.0)],
            1,
            id="an error of the script about a lost peer",
        ),
        pytest.param(
            [failure(0, "", 1.0, errors=(CHILD_FAILED,)), failure(1, "", 2.0)], 1, id="torchrun knows no reason"
        ),
        pytest.param([failure(0, "", 1.0, exit_code=134), failure(1, "", 2.0)], 1, id="torch aborts for a lost peer"),
        pytest.param([failure(0, "", 1.0, exit_code=137), failure(1, "", 2.0)], 0, id="a kill is a cause"),
        pytest.param(
            [failure(0, "", 1.0, exit_code=201), failure(1, "", 2.0)], 1, id="an agent without a peer's store"
        ),
        pytest.param([failure(0, "b", 2.0), failure(1, "", 3.0, hang=True)], 0, id="what hangs later follows"),
        pytest.param(
            [failure(0, "", 1.0, hang=True, waits=True), failure(1, "", 2.0, hang=True)],
            1,
            id="of those that hang, the one that is not in the collective",
        ),
        pytest.param(
            [hung(0, 7, idle=30.0), hung(1, 6, waits=True), hung(2, 7)],
            1,
            id="of those that hang, the one that has not begun the collective, wherever its stack is",
        ),
        pytest.param(
            [hung(0, 7, idle=30.0), hung(1, 6, waits=True), hung(2, 6)],
            2,
            id="of two that have not begun it, the one that does not wait for a message",
        ),
        pytest.param([hung(0, 7), hung(1, 6)], 0, id="a rule for the log says nothing of collectives"),
        pytest.param(
            [hung(0, 7, idle=30.0, age=500), hung(1, 6)], 0, id="half a second is no wait for those that have not"
        ),
        pytest.param([aborted(0, 7), aborted(1, 6)], 1, id="torch's watchdog ends all of them"),
        pytest.param([aborted(0, 7, age=1_000), aborted(1, 6)], 0, id="all lost a peer of which nothing is known"),
        pytest.param([aborted(0, 7), failure(1, "no data", 2.0)], 1, id="an error explains it"),
    ],
)
def test_the_root_cause(failures: list[Failure], rank: int) -> None:
    assert root_cause(failures).rank == rank


@pytest.mark.parametrize(
    ("failed", "may_be"),
    [
        pytest.param(failure(0, "", 1.0, errors=BACKEND), True, id="a lost peer"),
        pytest.param(failure(0, "no data", 1.0, errors=("ValueError",)), False, id="an error of its own"),
        pytest.param(failure(0, "", 1.0, errors=("ValueError",)), True, id="an error without a word"),
        pytest.param(failure(0, "bye", 1.0), True, id="Python's code after an error, of no known type"),
        pytest.param(failure(0, "bye", 1.0, exit_code=3), False, id="a code that the script has chosen"),
        pytest.param(failure(0, "", 1.0, exit_code=3), True, id="and of which nothing else is known"),
        pytest.param(failure(0, "killed by SIGKILL", 1.0, exit_code=137), False, id="a kill"),
        pytest.param(failure(0, "", 1.0, hang=True), False, id="a hang that nothing explains"),
        pytest.param(failure(0, "", 1.0, hang=True, waits=True), True, id="a rank that waits for another one"),
    ],
)
def test_what_a_lost_member_may_have_caused(failed: Failure, may_be: bool) -> None:
    assert may_be_consequence(failed) is may_be


def test_the_message_of_a_rank_that_ended_early_is_not_shown_as_an_error() -> None:
    state = running(2).state
    shown = first_failure(
        state, [failure(0, "ended", 1.0, exit_code=0, early=True), failure(1, "", 2.0, errors=BACKEND)]
    )
    assert (shown.rank, shown.message, shown.others) == (0, "", 1)
    assert first_failure(state, [failure(0, "no data", 1.0)]).message == "no data"


@pytest.mark.parametrize(
    ("apart", "steps", "ends"),
    [
        pytest.param(3599, (4, 4, 4), True, id="again and again at one place"),
        pytest.param(3600, (4, 4, 4), False, id="too far apart"),
        pytest.param(3599, (4, 4, 5), False, id="with a step between"),
        pytest.param(3599, (0, 0, 0), True, id="without any step"),
    ],
)
def test_the_same_hang_ends_the_job(apart: float, steps: tuple[int, ...], ends: bool) -> None:
    row = [
        PastRestart(1000.0 + apart * number, TrainingReason.WORKERS_HANG, "", True, "hang", step)
        for number, step in enumerate(steps)
    ]
    assert _same_hang(row) is ends


def test_the_pod_of_a_failure_is_named_also_if_its_agent_has_gone_meanwhile() -> None:
    """As that of a pod whose device is broken: it ends at once, while the others still stop."""
    job = running(2)
    job.fails(1)
    job.breaks(1)
    job.passes(4)
    assert 1 not in job.state.members
    job.joins(0)
    assert job.state.history[-1].message.startswith("rank 1 (pod-1) ")
