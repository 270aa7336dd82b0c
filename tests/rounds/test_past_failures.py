"""Failures as whole numbers: what the agents keep for the next coordinator."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.rounds.past_failures import MOST, encode, restore, signature
from pytorchjob_operator.rounds.values import PastRestart

NO = signature("1 ValueError: no")
FAILED = PastRestart(900.0, TrainingReason.WORKER_FAILED, "rank 1 exited", True, NO, 7)
MOVED = PastRestart(950.0, TrainingReason.REGROUPING, "pod-1 joined", False)
KEPT = replace(FAILED, message="")


def test_a_failure_survives_with_its_time_its_step_and_its_kind() -> None:
    numbers = encode((FAILED, MOVED, replace(FAILED, at=960.0, step=None)), 1000.0)
    assert numbers == (100, 8, int(NO), 40, 0, int(NO))
    assert restore((), numbers, 5, 2000.0) == (
        replace(KEPT, at=1895.0),
        replace(KEPT, at=1955.0, step=None),
    )


@pytest.mark.parametrize(
    ("history", "numbers", "expected"),
    [
        pytest.param((), (), (), id="nothing is known"),
        pytest.param((MOVED,), (100, 8, int(NO)), (replace(KEPT, at=900.0), MOVED), id="changes of members stay"),
        pytest.param((FAILED,), (1, 1, 1, 2, 2, 2), (FAILED,), id="this coordinator has counted a failure itself"),
        pytest.param((KEPT,), (1, 1, 1), (KEPT,), id="another member has reported as many"),
        pytest.param((KEPT,), (9, 1, 1, 2, 2), (KEPT,), id="numbers that are not in threes"),
    ],
)
def test_what_is_restored(
    history: tuple[PastRestart, ...], numbers: tuple[int, ...], expected: tuple[PastRestart, ...]
) -> None:
    assert restore(history, numbers, 0, 1000.0) == expected


def test_a_failure_of_this_moment_has_no_age() -> None:
    assert [encode((replace(FAILED, at=at),), 1000.0)[0] for at in (999.0, 1000.0, 1001.0)] == [1, 0, 0]


def test_the_last_failures_survive() -> None:
    many = tuple(replace(FAILED, at=float(second)) for second in range(MOST + 5))
    numbers = encode(many, 1000.0)
    assert len(numbers) == 3 * MOST
    assert restore((), numbers, 0, 1000.0)[0].at == 5.0


def test_equal_errors_have_equal_signatures_and_others_do_not() -> None:
    assert signature("1 a") == signature("1 a") != signature("1 b")
    assert signature("\udcff").isdecimal()
