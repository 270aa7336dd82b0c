"""The table of attacks is made of the kept figures."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import attacks
from benchmarks.attacks import FAILED, Attack, Run

RUN = Run("2026-11-22T16:00+00:00", "2 cores", "abc1234", "1.0 to 2.0")
FLOOD = Attack("tests/attacks/test_x.py::test_flood[fast]", FAILED, "an agent", [1.0, 2.0], [0.5, 3.0, 120.0])


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [
        pytest.param([3.0, 1.0, 2.0], 50, 2.0, id="the middle"),
        pytest.param([1.0] * 98 + [5.0, 9.0], 99, 5.0, id="of a hundred the last but one"),
        pytest.param([1.0, 9.0], 99, 9.0, id="of few the longest"),
    ],
)
def test_a_percentile_is_a_sample(values: list[float], share: int, found: float) -> None:
    assert attacks.percentile(values, share) == found


def test_a_row_has_both_p99_and_its_run() -> None:
    assert attacks.render([(FLOOD, RUN)]).splitlines() == [
        "- A: 2026-11-22T16:00+00:00, commit abc1234, load 1.0 to 2.0, 2 cores",
        "",
        "| Attack | Outcome | Bystander | Samples | p50 | p99 undisturbed | p99 attacked | Longest | Run |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| `tests/attacks/test_x.py::test_flood[fast]` | failed, as it must | an agent | 2 + 3 | 3.0 ms | 2.0 ms"
        " | 120 ms | 120 ms | A |",
    ]


def test_an_attack_without_a_bystander_has_the_reason() -> None:
    row = Attack("test", FAILED, "it only reads").cells()
    assert row == ("test", FAILED, "- (it only reads)", "-", "-", "-", "-", "-")


def test_an_attack_that_is_carried_out_again_takes_its_own_place(tmp_path: Path) -> None:
    path, later, other = (
        tmp_path / "kept.jsonl",
        replace(RUN, at="later"),
        replace(FLOOD, name="tests/attacks/test_y.py::test_y"),
    )
    attacks.keep([other, FLOOD], RUN, path)
    attacks.keep([replace(FLOOD, attacked=[7.0])], later, path)
    assert attacks.load_all(path) == [(replace(FLOOD, attacked=[7.0]), later), (other, RUN)]
