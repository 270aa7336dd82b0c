"""Writes merged lines: the origin before each, in its own colour on a terminal."""

from collections.abc import Callable, Sequence
from typing import BinaryIO, NamedTuple

from pytorchjob_operator.terminal import visible_bytes, visible_line

Paint = Callable[[str, int], str]
_HUES = ("cyan", "green", "yellow", "magenta", "blue", "red")
_COLOURS = (*_HUES, *(f"bright_{hue}" for hue in _HUES))


class Entry(NamedTuple):
    """A line to print."""

    label: str
    number: int
    """Chooses the colour: the rank, or the pod's place in the job."""
    stamp: bytes
    text: bytes


class Printer:
    """Writes lines byte by byte as the containers printed them; a terminal gets no byte that steers it."""

    def __init__(
        self, out: BinaryIO, paint: Paint | None = None, *, timestamps: bool = False, terminal: bool = False
    ) -> None:
        """Write to `out`; `paint` colours a label, None leaves it plain."""
        self._out, self._paint, self._timestamps, self._terminal = out, paint, timestamps, terminal
        self._prefixes: dict[str, bytes] = {}

    def write(self, entries: Sequence[Entry]) -> None:
        """Write these lines at once."""
        if entries:
            self._out.write(b"".join(map(self._format, entries)))
            self._out.flush()

    def _format(self, entry: Entry) -> bytes:
        prefix = self._prefixes.get(entry.label)
        if prefix is None:
            text = f"[{visible_line(entry.label)}]"
            painted = self._paint(text, entry.number) if self._paint else text
            prefix = self._prefixes[entry.label] = f"{painted} ".encode()
        stamp = entry.stamp + b" " if self._timestamps else b""
        return b"%b%b%b\n" % (prefix, stamp, visible_bytes(entry.text) if self._terminal else entry.text)


def terminal_paint() -> Paint | None:
    """Return what colours a label on this terminal; None if standard output shows no colours."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    if console.color_system is None or console.no_color:
        return None

    def paint(text: str, number: int) -> str:
        with console.capture() as captured:
            console.print(Text(text, style=_COLOURS[number % len(_COLOURS)]), end="")
        return captured.get()

    return paint
