"""Repetitions are kept, counted and put into a table; one that did not recover counts as infinitely slow."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recovery.results import Repetition, append, load, percentile, table, write


def done(seconds: float | None, **fields: Any) -> Repetition:
    return Repetition("tuned", "worker-killed", 0.0, 1.0, "x-worker-1", seconds, **fields)


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kept.jsonl"
    assert load(path) == []
    kept = [done(1.5, lost_steps=3, problems=("a", "b")), done(None)]
    for one in kept:
        append(path, one)
    assert load(path) == kept


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        pytest.param([3.0, 1.0, 2.0], 50, 2.0, id="the middle of three"),
        pytest.param([1.0, 2.0, 3.0, 4.0], 50, 2.0, id="the lower middle of four"),
        pytest.param([float(number) for number in range(1, 21)], 95, 19.0, id="the last but one of twenty"),
        pytest.param([1.0, math.inf], 100, math.inf, id="the greatest is a failure"),
    ],
)
def test_percentiles(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


def test_where_no_pod_is_new_what_is_beyond_the_imports_is_told() -> None:
    assert " |  | 0.50 s | 1.50 s | " in table([done(2.0, import_seconds=0.5)])


def test_a_cell_is_a_row() -> None:
    cell = [
        done(2.0, pod_seconds=0.5, import_seconds=0.25, lost_steps=4, restarted=1),
        done(3.0, problems=("wrong",)),
        done(None),
    ]
    assert table(cell).splitlines()[4] == (
        "| worker process killed (SIGKILL) | tuned | **3.00 s** | never | never | 1 | 0.50 s | 0.25 s | 1.50 s |  "
        "| <= 4 | 1 | 1 | 3 | 1.0 | A, 1970-01-01 |"
    )


def test_a_table_goes_into_the_place_of_its_file_and_nowhere_else(tmp_path: Path) -> None:
    path, ends = tmp_path / "README.md", ", written by python -m benchmarks.recovery table --write -->\n"
    places = f"a\n<!-- begin: one{ends}old\n<!-- end -->\nb\n<!-- begin: two{ends}old\n<!-- end -->\nc\n"
    path.write_text(places)
    write("new", "two", path)
    assert path.read_text() == "new".join(places.rsplit("old", 1))
    with pytest.raises(ValueError, match="no place for a table: expected <!-- begin: three, "):
        write("new", "three", path)


def test_each_row_names_the_machines_and_the_days_of_its_runs() -> None:
    day = 24 * 3600.0
    cell = [done(2.0, machine="fast"), replace(done(3.0, machine="slow"), at=2 * day), done(4.0, machine="fast")]
    lines = table(cell).splitlines()
    assert lines[:3] == ["- A: fast", "- B: slow", ""]
    assert lines[-1].endswith("| 2 x A, 1 x B, 1970-01-01 to 1970-01-03 |")
