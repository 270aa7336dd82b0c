"""Lines with a style: rich colours them on a terminal; a pipe gets the plain text."""

import sys
from collections.abc import Iterable
from typing import NamedTuple

from pytorchjob_operator.terminal import Painted, visible_line


class StyledLine(NamedTuple):
    """One line, and its style in rich's words; empty: none."""

    text: str
    style: str = ""


def plain(lines: Iterable[StyledLine]) -> str:
    """Return the lines as text."""
    return "\n".join(visible_line(line.text) for line in lines)


def paint(lines: Iterable[StyledLine]) -> str:
    """Return the lines as text, with colours if stdout is a terminal."""
    if not sys.stdout.isatty():
        return plain(lines)
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    with console.capture() as captured:
        for line in lines:
            console.print(Text(visible_line(line.text), line.style))
    return Painted(captured.get().rstrip("\n"))
