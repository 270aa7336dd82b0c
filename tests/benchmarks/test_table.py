"""Figures are kept with their samples, and the table of the README is made of what was kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import table
from benchmarks.table import Measurement, Row

OURS = Row(
    "start", "1.00 s", "2.00 s torchrun", "**0.50**", "< 2 x", "python -m benchmarks local", "1.0", {"ours": [1.0]}
)
BEFORE = Measurement(OURS, "2026-11-21T10:00:00+00:00", "fast")
PLACE = "a\n<!-- begin: measurements.jsonl, written by python -m benchmarks -->\nold\n<!-- end -->\nb\n"


def test_a_figure_is_kept_with_its_samples_its_date_and_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    table.append([OURS], path)
    (kept,) = table.load_all(path)
    assert kept.row == OURS
    assert kept.machine == table.machine()
    assert kept.at.startswith("20")


@pytest.mark.parametrize(
    ("kept", "run"),
    [
        pytest.param([BEFORE], "A, 2026-11-21", id="a run"),
        pytest.param([BEFORE, replace(BEFORE, at="2026-11-22T")], "A, 2026-11-22", id="the newest of a name"),
        pytest.param(
            [replace(BEFORE, row=replace(OURS, what="other"), machine="slow"), BEFORE], "B, 2026-11-21", id="a machine"
        ),
        pytest.param(
            [replace(BEFORE, at="", row=replace(OURS, samples={}))],
            "A, without raw data: to be renewed",
            id="a figure of which only the summary is known",
        ),
    ],
)
def test_a_row_has_the_machine_and_the_date_of_its_run(kept: list[Measurement], run: str) -> None:
    line = table.table(kept).splitlines()[-1]
    assert (
        line == f"| start | 1.00 s | 2.00 s torchrun | **0.50** | < 2 x | 1.0 | {run} | `python -m benchmarks local` |"
    )


def test_the_readme_shows_what_was_kept(tmp_path: Path) -> None:
    raw, readme = tmp_path / "kept.jsonl", tmp_path / "README.md"
    readme.write_text(PLACE)
    table.append([OURS], raw)
    table.write(readme, raw)
    assert readme.read_text() == PLACE.replace("old", table.table(table.load_all(raw)))


def test_the_committed_table_is_made_of_the_committed_figures() -> None:
    assert table.table(table.load_all()) in table.README.read_text()
    for line in table.RAW.read_text().splitlines():
        kept = json.loads(line)
        assert kept["machine"], kept
        assert kept["at"] or not kept["row"]["samples"], kept
