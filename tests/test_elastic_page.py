"""docs/elastic.md promises nothing without a test: each row of its tables names one, and all that are named exist."""

from pathlib import Path

from tests.citations import cited, collected

TEXT = (Path(__file__).parent.parent / "docs" / "elastic.md").read_text()
PROVEN = ("What is promised", "What happens when", "What cannot work, and how it is reported", "Restart budget")


def rows(section: str) -> list[str]:
    """The lines of a section's table, its two lines of heading aside."""
    _, _, after = TEXT.partition(f"# {section}\n")
    lines = after.partition("\n#")[0].splitlines()
    return [line for line in lines if line.startswith("| ")][2:]


def test_every_row_names_a_test() -> None:
    assert [section for section in PROVEN if len(rows(section)) < 4] == []
    assert [row for section in PROVEN for row in rows(section) if not cited(row.rpartition(" | ")[2])] == []


def test_every_test_that_is_named_exists() -> None:
    named = cited(TEXT)
    there = collected(named)
    assert [test for test in named if test not in there] == []
