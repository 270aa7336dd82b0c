"""Lines with a style: rich colours them on a terminal; a pipe gets the plain text."""

import sys
from collections.abc import Iterable
from typing import NamedTuple


class Line(NamedTuple):
    """One line, and its style in rich's words; empty: none."""

    text: str
    style: str = ""


def paint(lines: Iterable[Line]) -> str:
    """Return the lines as text, with colours if stdout is a terminal."""
    found = [*lines]
    if not sys.stdout.isatty():
        return "\n".join(line.text for line in found)
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    with console.capture() as captured:
        for line in found:
            console.print(Text(line.text, line.style))
    return captured.get().rstrip("\n")
