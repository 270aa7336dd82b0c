import pytest

from pytorchjob.local.pace import Pace, describe
from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.model import ProgressStatus


def measured(*steps: tuple[float, int], round_: str = "1.1") -> Pace:
    pace = Pace()
    for now, step in steps:
        pace.add(Report(round=round_, step=step), now)
    return pace


@pytest.mark.parametrize(
    ("steps", "now", "rate"),
    [
        pytest.param([(0.0, 5)], 1.0, None, id="one report gives no speed"),
        pytest.param([(0.0, 5), (0.5, 9)], 1.0, None, id="two reports within a second give no speed"),
        pytest.param([(0.0, 0), (2.0, 20), (4.0, 40)], 4.0, 10.0, id="steps by time"),
        pytest.param([(0.0, 0), (10.0, 100), (60.0, 600), (61.0, 620)], 61.0, 20.0, id="the last half minute counts"),
        pytest.param([(0.0, 0), (10.0, 100)], 40.0, 2.5, id="it falls while no step is reported"),
        pytest.param([(0.0, 90), (1.0, 100), (2.0, 40), (4.0, 60)], 4.0, 10.0, id="a step back begins again"),
    ],
)
def test_the_speed(steps: list[tuple[float, int]], now: float, rate: float | None) -> None:
    assert measured(*steps).rate(now) == rate


def test_another_round_begins_again() -> None:
    pace = measured((0.0, 0), (2.0, 100))
    pace.add(Report(round="1.2", step=100), 10.0)
    assert pace.rate(10.0) is None


@pytest.mark.parametrize(
    ("report", "status", "rate", "text"),
    [
        pytest.param(Report(), None, None, "", id="a script that reports nothing"),
        pytest.param(Report(step=120), None, 14.2, "step 120, 14.2 steps/s", id="steps without a total"),
        pytest.param(
            Report(step=120, total=1966, metrics={"acc": 0.5, "loss": 0.21345}),
            None,
            14.2,
            "step 120/1966, 6 %, 14.2 steps/s, 2:10 left, loss 0.2135, acc 0.5",
            id="all of it, the loss first",
        ),
        pytest.param(
            Report(step=1, total=1000), None, 0.05, "step 1/1000, 0 %, 20 s per step, 5:33:00 left", id="hours"
        ),
        pytest.param(Report(step=5, total=5), None, 2.0, "step 5/5, 100 %, 2.0 steps/s, 0:00 left", id="the last step"),
        pytest.param(
            Report(),
            ProgressStatus(percent=40, remaining_seconds=90, metrics={"loss": 2}),
            None,
            "40 %, 1:30 left, loss 2",
            id="what only the status knows",
        ),
        pytest.param(
            Report(step=10, total=100), ProgressStatus(step=5, total=100, remaining_seconds=30), 1.0,
            "step 10/100, 10 %, 1.0 steps/s, 0:30 left", id="the script's own remaining time wins",
        ),
    ],
)  # fmt: skip
def test_what_is_known_is_one_text(
    report: Report, status: ProgressStatus | None, rate: float | None, text: str
) -> None:
    assert describe(report, status, rate) == text
