"""docs/compatibility.md cannot rot: it has every section, each row is whole, and each test that a row names exists."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.citations import cited, collected

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
SECTIONS = [
    "Resource and definition",
    "Fields",
    "Defaults",
    "Validation",
    "Order of work",
    "Names, labels, owners",
    "Environment",
    "Init container",
    "Status",
    "Success and failure",
    "Restarts and limits",
    "Suspension and managedBy",
    "Gang scheduling",
    "Autoscaler and scaling",
    "Events, metrics, flags, installation",
    "Defects of v1.9 and what became of them",
]
LEAST_ROWS = 150


class Row(NamedTuple):
    """One line of a table."""

    line: int
    section: str
    cells: tuple[str, ...]

    @property
    def cited(self) -> list[str]:
        """The tests that the last cell names."""
        return cited(self.cells[-1])


def rows(text: str) -> list[Row]:
    """Every line of a table, its two lines of heading aside."""
    found, section = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith(("| fact |", "| --- |")):
            found.append(Row(number, section, tuple(cell.strip() for cell in line.strip().strip("|").split(" | "))))
    return found


ROWS = rows(PAGE.read_text())


def test_every_section_is_there_in_its_order() -> None:
    assert [line.removeprefix("## ") for line in PAGE.read_text().splitlines() if line.startswith("## ")] == SECTIONS


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_has_rows(section: str) -> None:
    assert [row for row in ROWS if row.section == section]


def test_no_row_is_lost() -> None:
    assert len(ROWS) >= LEAST_ROWS


def test_every_row_says_what_v1_does_what_happens_here_and_what_proves_it() -> None:
    assert [row.line for row in ROWS if len(row.cells) != 4 or not all(row.cells) or not row.cited] == []


def test_no_fact_is_told_twice() -> None:
    facts = [(row.section, row.cells[0]) for row in ROWS]
    assert [fact for fact in facts if facts.count(fact) > 1] == []


def test_every_test_that_a_row_names_exists() -> None:
    there = collected(test for row in ROWS for test in row.cited)
    assert [f"line {row.line}: {test}" for row in ROWS for test in row.cited if test not in there] == []
