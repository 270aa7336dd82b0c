"""A terminal's lines after what a program has written to it. Pure.

It follows the control sequences that this project's commands and rich use: line ends, moves, erased lines, colours.
"""

import re
from itertools import groupby
from typing import NamedTuple

_PIECE = re.compile(r"\x1b\[(?P<values>[?0-9;]*)(?P<final>[A-Za-z])|(?P<character>[^\x1b])|\x1b")
_UNFINISHED = re.compile(r"\x1b(\[[?0-9;]*)?$")


class _Cell(NamedTuple):
    style: str
    """Values of the sequences since the last reset."""
    character: str


_EMPTY = _Cell("", " ")


class Terminal:
    """A terminal that is wide enough for every line and forgets none."""

    def __init__(self) -> None:
        self._lines: list[list[_Cell]] = [[]]
        self._row = self._column = 0
        self._style = self._rest = ""

    def feed(self, text: str) -> None:
        """Take the next piece of output; it may end within a control sequence."""
        text = self._rest + text
        unfinished = _UNFINISHED.search(text)
        self._rest = unfinished[0] if unfinished else ""
        for found in _PIECE.finditer(text.removesuffix(self._rest)):
            if found["final"]:
                self._control(found["final"], found["values"])
            elif found["character"]:
                self._put(found["character"])

    def plain(self) -> list[str]:
        """The lines without colours and without spaces at their ends."""
        return ["".join(cell.character for cell in line).rstrip() for line in self._lines]

    def styled(self) -> list[str]:
        """The same lines with their colours, as control sequences."""
        return ["".join(_run(style, [*cells]) for style, cells in groupby(line, _style)) for line in self._lines]

    def _control(self, final: str, values: str) -> None:
        match final:
            case "m":
                self._style = "" if values in ("", "0") else f"{self._style};{values}".lstrip(";")
            case "A":
                self._row = max(self._row - int(values or 1), 0)
            case "K":
                line = self._lines[self._row]
                del line[0 if values == "2" else self._column :]
            case _:
                pass  # a cursor that is hidden, for example

    def _put(self, character: str) -> None:
        match character:
            case "\n":
                self._row += 1
                if self._row == len(self._lines):
                    self._lines.append([])
            case "\r":
                self._column = 0
            case _:
                line = self._lines[self._row]
                line += [_EMPTY] * (self._column - len(line))
                line[self._column : self._column + 1] = [_Cell(self._style, character)]
                self._column += 1


def _style(cell: _Cell) -> str:
    return cell.style


def _run(style: str, cells: list[_Cell]) -> str:
    text = "".join(cell.character for cell in cells)
    return f"\x1b[{style}m{text}\x1b[0m" if style else text
