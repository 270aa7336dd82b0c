"""docs/goodput.md: its classes are those of the code, and each promise names a test."""

import re
from pathlib import Path

from pytorchjob_operator.goodput.classes import TimeClass

TEXT = (Path(__file__).parent.parent / "docs" / "goodput.md").read_text()


def rows(section: str) -> list[str]:
    """The lines of a section's table, its two lines of heading aside."""
    after = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [line for line in after.splitlines() if line.startswith("| ")][2:]


def test_the_page_has_every_class() -> None:
    assert {row.split("`")[1] for row in rows("The classes")} == {each.value for each in TimeClass}


def test_every_promise_names_a_test() -> None:
    named = [re.search(r"`(tests/[\w/]+\.py)", row.rpartition(" | ")[2]) for row in rows("What is promised")]
    assert len(named) > 5
    assert None not in named
