"""The output of all replicas as one stream of whole lines, each with its replica's name in front."""

import re
from typing import TextIO

MAX_LINE = 16384
"""A longer line is shown in pieces of this size: a replica may not fill our memory."""

_COLOURS = (36, 32, 33, 35, 34, 31, 96, 92, 93, 95, 94, 91)
_END_OF_LINE = re.compile(rb"\r\n|\n|\r")


class LineBuffer:
    """Cuts one replica's bytes into lines; a progress bar's carriage return ends a line too."""

    def __init__(self) -> None:
        self._rest = b""
        self._returned = False

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete now."""
        if self._returned and data.startswith(b"\n"):
            data = data[1:]  # the other half of a line's end that was cut in two
        self._returned = data.endswith(b"\r")
        *whole, self._rest = _END_OF_LINE.split(self._rest + data)
        while len(self._rest) > MAX_LINE:
            whole.append(self._rest[:MAX_LINE])
            self._rest = self._rest[MAX_LINE:]
        pieces = [line[at : at + MAX_LINE] for line in whole for at in range(0, max(len(line), 1), MAX_LINE)]
        return [piece.decode(errors="replace") for piece in pieces]

    def flush(self) -> list[str]:
        """What is left when nothing follows any more."""
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []


def prefix(label: str, *, colour: int | None) -> str:
    """What stands in front of a replica's lines; `colour` is the replica's number, None for plain text."""
    if colour is None:
        return f"[{label}] "
    return f"\x1b[{_COLOURS[colour % len(_COLOURS)]}m[{label}]\x1b[0m "


def wants_colour(stream: TextIO, no_colour: str | None) -> bool:
    """Colour on a terminal only, unless NO_COLOR is set."""
    return stream.isatty() and not no_colour
