"""The time that a rank spends outside collectives, from the times of its waits."""

from collections.abc import Callable

import pytest

from pytorchjob_agent.workers.startup.pytorchjob_own_time import WINDOW, OwnTimeMeter

SECOND = 1_000_000_000

Call = tuple[str, float] | tuple[str, float, float]
"""What happens (`begins`, `waits`, `step`), and when, in seconds."""


def measure(*calls: Call) -> list[tuple[float, float]]:
    """Own and total seconds of each window."""
    found: list[tuple[float, float]] = []
    meter = OwnTimeMeter(lambda own, wall: found.append((own / SECOND, wall / SECOND)))
    for what, *at in calls:
        times = [round(seconds * SECOND) for seconds in at]
        calls_of: dict[str, Callable[..., None]] = {
            "begins": meter.begin,
            "waits": meter.waited,
            "step": meter.step,
            "saves": meter.save_begins,
            "saved": meter.save_ends,
        }
        calls_of[what](*times)
    return found


@pytest.mark.parametrize(
    ("calls", "windows"),
    [
        pytest.param([("step", 8)], [], id="nothing is known without collectives"),
        pytest.param([("begins", 5), ("waits", 5, 7), ("step", 8)], [(6, 8)], id="a collective that blocks"),
        pytest.param([("begins", 6), ("step", 8)], [(6, 8)], id="a wait that only the step shows"),
        pytest.param(
            [("begins", 1), ("begins", 3), ("begins", 6), ("step", 8)],
            [(6, 8)],
            id="all-reduces that run while the rank computes",
        ),
        pytest.param([("begins", 1), ("waits", 3, 5), ("step", 8)], [(6, 8)], id="a wait for an earlier collective"),
        pytest.param(
            [("begins", 1), ("waits", 1, 2), ("begins", 7), ("step", 8)],
            [(6, 8)],
            id="a wait for buffers, then one for gradients",
        ),
        pytest.param([("begins", 1), ("waits", 1, 4), ("waits", 2, 3), ("step", 8)], [(5, 8)], id="waits that overlap"),
        pytest.param([("begins", 1), ("waits", 1, 2), ("step", 3)], [], id="less than a window"),
        pytest.param(
            [("begins", 1), ("waits", 1, 2), ("saves", 3), ("saved", 6), ("step", 8)], [(4, 8)], id="a save by one rank"
        ),
        pytest.param(
            [("saves", 1), ("begins", 2), ("waits", 2, 5), ("saved", 6), ("step", 8)],
            [(3, 8)],
            id="a save in which the ranks wait for each other",
        ),
        pytest.param([("begins", 1), ("waits", 1, 2), ("saved", 6), ("step", 8)], [(7, 8)], id="an end without begin"),
        pytest.param([("begins", 1), ("waits", 0.5, 9), ("step", 9)], [(0.5, 9)], id="nearly all is waiting"),
    ],
)
def test_own_time_is_what_is_left_of_a_step(calls: list[Call], windows: list[tuple[float, float]]) -> None:
    assert measure(("begins", 0), ("step", 0), *calls) == windows


def test_time_without_any_wait_belongs_to_a_later_window() -> None:
    assert measure(("begins", 0), ("step", 0), ("step", 5), ("begins", 9), ("step", 10)) == [(9, 10)]


def test_a_window_has_whole_steps() -> None:
    steps: list[Call] = []
    for at in range(10):
        steps += [("begins", at + 0.75), ("step", at + 1)]
    assert WINDOW == 4 * SECOND
    assert measure(("begins", 0), ("step", 0), *steps) == [(3, 4), (3, 4)]


def test_a_script_without_an_optimizer_is_measured_at_its_waits() -> None:
    calls: list[Call] = []
    for at in range(10):
        calls += [("begins", at + 0.5), ("waits", at + 0.5, at + 0.75)]
    assert measure(*calls) == [(3.0, 4.25), (3.0, 4.0)]


def test_before_the_first_collective_no_time_counts() -> None:
    assert measure(("step", 50), ("begins", 100), ("step", 101), ("begins", 103), ("step", 105)) == [(2, 5)]
