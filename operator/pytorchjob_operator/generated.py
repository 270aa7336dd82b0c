"""Writes generated text into a page that people write: what stands between two marks is replaced."""

import sys
from collections.abc import Callable
from pathlib import Path

MARKS = "<!-- begin: written by make generate -->", "<!-- end -->"
"""Of a page with one generated part."""


def rewrite(change: Callable[[str], str]) -> None:
    """Change the page that the command line names. Raises ValueError without its marks."""
    page = Path(sys.argv[1])
    page.write_text(change(page.read_text()))


def insert_between(page: str, marks: tuple[str, str], text: str) -> str:
    """Return the page with this text between its marks, on lines of its own. Raises ValueError without the marks."""
    head, begin, rest = page.partition(marks[0])
    _, end, tail = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"the page has no lines {marks[0]!r} and {marks[1]!r}")
    return f"{head}{begin}\n{text}\n{end}{tail}"
