"""The advice about the interval of saves: Daly's formula, human numbers, and when there is nothing to say."""

from dataclasses import replace
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytorchjob_operator.goodput.advice import advise, human, optimum
from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.figures import Figures, SaveFigures
from pytorchjob_operator.goodput.sentence import describe

P, W = TimeClass.RUNNING, TimeClass.WASTED_PROGRESS_FROM_DISRUPTION
SAVE, RECOVERY = TimeClass.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME, TimeClass.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION

RARE = Figures(
    {P: 3600.0, W: 300.0, SAVE: 18.0, RECOVERY: 12.0},
    interruptions=3,
    new_steps=3600,
    saves=SaveFigures(18, 18.0, 3600),
)
"""A step takes 1 s and a save 1 s. It saves each 200 steps and is interrupted three times in an hour."""
OFTEN = Figures(
    {P: 3600.0, W: 10.0, SAVE: 1800.0, RECOVERY: 12.0},
    interruptions=1,
    new_steps=3600,
    saves=SaveFigures(360, 1800.0, 3600),
)
"""A step takes 1 s and a save 5 s. It saves each ten steps and is interrupted once in an hour."""


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        pytest.param(RARE, "Saving every 50 steps instead of 200 would have given 95.7 %.", id="too rare"),
        pytest.param(OFTEN, "Saving every 200 steps instead of 10 would have given 94.6 %.", id="too often"),
        pytest.param(replace(RARE, interruptions=0), "", id="no interruption"),
        pytest.param(replace(RARE, steps_known=False), "", id="unknown steps"),
        pytest.param(replace(RARE, saves=SaveFigures()), "", id="unknown saves"),
        pytest.param(replace(RARE, saves=SaveFigures(72, 72.0, 3600)), "", id="little would be gained"),
        pytest.param(replace(RARE, new_steps=0), "", id="no step was timed"),
        pytest.param(
            replace(RARE, saves=SaveFigures(0)),
            "The script saved nothing: each interruption cost all steps.",
            id="none",
        ),
        pytest.param(
            replace(RARE, saves=SaveFigures(0), seconds={P: 3600.0, RECOVERY: 12.0}),
            "",
            id="none, and nothing repeated",
        ),
        pytest.param(
            replace(RARE, new_steps=36, saves=SaveFigures(3, 3.0, 36)),
            "Saving every step instead of 12 would have given 94.4 %.",
            id="long steps",
        ),
    ],
)
def test_advice(figures: Figures, expected: str) -> None:
    assert advise(figures) == expected


def test_the_advice_follows_the_sentence() -> None:
    assert describe(RARE).endswith(
        "12 s to 3 interruptions. Saving every 50 steps instead of 200 would have given 95.7 %."
    )


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (0.0, 1),
        (1.4, 1),
        (7.6, 8),
        (9.6, 10),
        (11.0, 10),
        (13.0, 15),
        (37.0, 40),
        (71.0, 80),
        (960.0, 1000),
        (1234.0, 1000),
    ],
)
def test_a_number_of_steps_that_people_write(steps: float, expected: int) -> None:
    assert human(steps) == expected


def test_young_where_a_save_is_short() -> None:
    assert optimum(1.0, 1e6) == pytest.approx(sqrt(2e6), rel=0.01)


def test_daly_where_a_save_is_long() -> None:
    assert optimum(100.0, 1000.0) == pytest.approx(sqrt(2e5) * (1 + sqrt(0.05) / 3 + 0.05 / 9) - 100)


def test_a_save_that_is_longer_than_the_job_lives() -> None:
    assert optimum(100.0, 40.0) == 40.0


@given(st.floats(0.01, 5), st.floats(100, 1e6))
def test_no_interval_loses_less_than_the_optimum(cost: float, between: float) -> None:
    def lost(interval: float) -> float:
        """The parts of the time that saves and replays take."""
        return cost / (interval + cost) + (interval + cost) / (2 * between)

    least = min(lost(optimum(cost, between) * factor) for factor in (0.5, 0.7, 1.5, 2.0))
    assert lost(optimum(cost, between)) <= least * 1.001


@given(
    st.builds(
        Figures,
        st.dictionaries(st.sampled_from(TimeClass), st.floats(0, 1e15)),
        st.integers(0, 2**31),
        st.booleans(),
        st.integers(0, 2**53),
        saves=st.builds(SaveFigures, st.none() | st.integers(0, 2**31), st.floats(0, 1e15), st.integers(0, 2**53)),
    )
)
def test_any_figures_have_their_words(figures: Figures) -> None:
    assert describe(figures) == "" or describe(figures).endswith(".")
