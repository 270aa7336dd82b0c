"""The figures of a stored status at a moment, and the sentence that tells them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.figures import Figures, read
from pytorchjob_operator.goodput.interruptions import Causes
from pytorchjob_operator.goodput.sentence import describe

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STORED = {
    "time": "2026-01-02T03:04:05.500Z",
    "current": "running",
    "seconds": {"running": 90.0, "programStartup": 10.0},
    "furthestStep": 7,
    "interruptions": 2,
}
ENDED = [{"type": "Succeeded", "status": "True"}]
P = TimeClass.RUNNING


def test_the_time_since_a_status_was_written_belongs_to_its_open_class() -> None:
    found = read({"goodput": STORED}, NOW + timedelta(seconds=10.5))
    assert found is not None
    assert (found.of(P), found.total, found.lost, found.percent) == (100.0, 110.0, 10.0, 90.9)
    assert (found.interruptions, found.steps_known) == (2, True)


def test_a_job_that_has_ended_ages_no_more() -> None:
    found = read({"goodput": STORED, "conditions": ENDED}, NOW + timedelta(days=1))
    assert found is not None
    assert found.total == 100.0


@pytest.mark.parametrize(
    "stored",
    [
        None,
        "no object",
        {},
        {**STORED, "current": "lunch"},
        {**STORED, "time": "soon"},
        {**STORED, "time": "2026-01-02T03:04:05"},
        {**STORED, "seconds": {"running": "much"}},
        {**STORED, "seconds": []},
    ],
)
def test_a_damaged_ledger_has_no_figures(stored: Any) -> None:
    assert read({"goodput": stored}, NOW) is None


@pytest.mark.parametrize(
    ("seconds", "interruptions", "steps_known", "expected"),
    [
        pytest.param({}, 0, True, "", id="before any time has passed"),
        pytest.param({P: 60.0}, 0, True, "100.0 % running.", id="nothing was lost"),
        pytest.param(
            {
                P: 4200.0,
                TimeClass.DETECTION: 60.0,
                TimeClass.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION: 180.0,
                TimeClass.WASTED_PROGRESS_FROM_DISRUPTION: 120.0,
            },
            3,
            True,
            "92.1 % running; 4 min lost to 3 interruptions, 2 min to replayed steps.",
            id="the largest loss comes first",
        ),
        pytest.param(
            {P: 90.0, TimeClass.PROGRAM_STARTUP: 9.96, TimeClass.OTHER: 0.04},
            1,
            False,
            "10 s lost to start. Without known steps, repeated steps are unknown.",
            id="without known steps there is no percentage, and small losses are left out",
        ),
        pytest.param({P: 60.0}, 0, False, "", id="without known steps and losses nothing is said"),
        pytest.param(
            {TimeClass.SUSPENDED: 2 * 86_400.0, TimeClass.WAITING_FOR_PODS: 5400.0},
            0,
            True,
            "0.0 % running; 2 d lost to suspension, 1.5 h to waiting for pods.",
            id="days and hours",
        ),
        pytest.param(
            {P: 50.0, TimeClass.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION: 4.24, TimeClass.DETECTION: 0.0},
            1,
            True,
            "92.2 % running; 4.2 s lost to 1 interruption.",
            id="a single one",
        ),
        pytest.param(
            {P: 50.0, TimeClass.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION: 5.0},
            0,
            True,
            "90.9 % running; 5 s lost to regrouping.",
            id="a restart without a failure",
        ),
        pytest.param(
            {
                P: 10.0,
                TimeClass.HUNG: 600.0,
                TimeClass.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME: 30.0,
                TimeClass.OTHER: 1.0,
            },
            0,
            True,
            "1.6 % running; 10 min lost to hung workers, 30 s to saves, 1 s to the end.",
            id="hung workers, saves and the end",
        ),
    ],
)
def test_the_sentence(seconds: dict[TimeClass, float], interruptions: int, steps_known: bool, expected: str) -> None:
    assert describe(Figures(seconds, interruptions, steps_known)) == expected


@pytest.mark.parametrize(
    ("interruptions", "causes", "expected"),
    [
        pytest.param(3, Causes(3), "3 pod losses", id="pod losses"),
        pytest.param(4, Causes(3, 1), "3 pod losses and 1 crash", id="two causes"),
        pytest.param(6, Causes(1, 2, 3), "1 pod loss, 2 crashes and 3 hangs", id="all causes"),
        pytest.param(2, Causes(0, 1), "1 crash and 1 other interruption", id="an unknown cause beside a known one"),
        pytest.param(2, Causes(), "2 interruptions", id="unknown causes"),
    ],
)
def test_what_interrupted_a_job_is_named(interruptions: int, causes: Causes, expected: str) -> None:
    figures = Figures({P: 50.0, TimeClass.DETECTION: 50.0}, interruptions, causes=causes)
    assert describe(figures) == f"50.0 % running; 50 s lost to {expected}."


@pytest.mark.parametrize(
    ("interruptions", "causes", "expected"),
    [
        pytest.param(2, Causes(hangs=2), "restarts after 2 hangs", id="two hangs"),
        pytest.param(3, Causes(crashes=3), "restarts after 3 crashes", id="a program that never starts"),
        pytest.param(1, Causes(), "restarts after 1 interruption", id="an unknown cause"),
        pytest.param(0, Causes(), "regrouping", id="no interruption"),
    ],
)
def test_without_known_steps_only_the_restarts_are_known_to_be_lost(
    interruptions: int, causes: Causes, expected: str
) -> None:
    """The time for which workers hang before their first step counts as running, so it cannot be told."""
    seconds = {P: 248.0, TimeClass.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION: 2.1}
    said = describe(Figures(seconds, interruptions, steps_known=False, causes=causes))
    assert said == f"2.1 s lost to {expected}. Without known steps, repeated steps are unknown."


def test_every_class_but_running_has_a_word() -> None:
    for each in TimeClass:
        said = describe(Figures({P: 1.0, each: 100.0}))
        assert each is P or " lost to " in said
