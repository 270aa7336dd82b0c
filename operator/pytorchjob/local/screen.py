"""The screen output of a run: the replicas' lines, each with its replica's name, messages, and a progress line.

The lines of replicas go to one stream, everything else to the other. On a terminal the progress line is rewritten in
place, elsewhere it is printed when it changes.
"""

import re
import shutil
from dataclasses import dataclass, field
from typing import TextIO

from pytorchjob_operator.terminal import visible, visible_line

MAX_LINE = 16384
"""A longer line is split into pieces of this many bytes: the output of a replica must not fill the runner's memory."""

DETAILS_SECONDS = 30.0
"""Seconds between two lines that differ in their details only, where lines stay."""

_CLEAR = "\r\x1b[K"
_COLOURS = (36, 32, 33, 35, 34, 31, 96, 92, 93, 95, 94, 91)
_END_OF_LINE = re.compile(rb"\r\n|\n|\r")


class LineBuffer:
    """Splits one replica's output into lines; the carriage return of a progress bar ends a line too."""

    def __init__(self) -> None:
        self._rest = b""
        self._returned = False

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that are now complete."""
        if self._returned and data.startswith(b"\n"):
            data = data[1:]  # the second half of a "\r\n" that was split between two reads
        self._returned = data.endswith(b"\r")
        *whole, self._rest = _END_OF_LINE.split(self._rest + data)
        while len(self._rest) > MAX_LINE:
            whole.append(self._rest[:MAX_LINE])
            self._rest = self._rest[MAX_LINE:]
        pieces = [line[at : at + MAX_LINE] for line in whole for at in range(0, max(len(line), 1), MAX_LINE)]
        return [piece.decode(errors="replace") for piece in pieces]

    def flush(self) -> list[str]:
        """Return the incomplete last line, at the end of the output."""
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []


def prefix(label: str, *, colour: int | None) -> str:
    """The text before a replica's lines; `colour` is the replica's number, None for plain text."""
    if colour is None:
        return f"[{label}] "
    return f"\x1b[{_COLOURS[colour % len(_COLOURS)]}m[{label}]\x1b[0m "


def wants_colour(stream: TextIO, no_colour: str | None) -> bool:
    """True for a terminal, unless NO_COLOR is set."""
    return stream.isatty() and not no_colour


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """The state of a run, as the progress line shows it."""

    job: str
    state: str
    ready: int
    wanted: int
    restarts: int
    details: str = field(default="", compare=False)
    """Steps, speed and remaining time, as far as they are known."""
    age: float | None = field(default=None, compare=False)
    """Seconds in this state, for the live line."""

    def text(self, elapsed: float, *, live: bool = False) -> str:
        """The progress line."""
        age = f" {duration(self.age)}" if live and self.age is not None else ""
        details = f", {self.details}" if self.details else ""
        ready, restarts = f"{self.ready}/{self.wanted} ready", count_restarts(self.restarts)
        return f"{self.job}: {self.state}{age}{details}, {ready}, {restarts}, {duration(elapsed)}"


def count_restarts(number: int) -> str:
    """Format a number of restarts for people: 1 restart, 2 restarts."""
    return f"{number} restart{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Format seconds for people: 12 s, 3 min 4 s, 2 h 3 min."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Screen:
    """Two output streams, and a progress line that is never mixed into their lines."""

    def __init__(self, out: TextIO, err: TextIO, no_colour: str | None = None) -> None:
        self._out, self._err = out, err
        self._colour = wants_colour(out, no_colour)
        self._live = err.isatty()
        self._shown: tuple[ProgressLine, str, int] | None = None
        self._printed_at = 0.0
        self._drawn = False

    def log(self, label: str, number: int, line: str) -> None:
        """Print one line of a replica."""
        self._wipe()
        shown = visible(line) if self._out.isatty() else line
        print(prefix(label, colour=number if self._colour else None) + shown, file=self._out)

    def message(self, text: str) -> None:
        """Print a message about the run."""
        self._wipe()
        print(visible(text), file=self._err)

    def progress(self, progress: ProgressLine, elapsed: float) -> None:
        """Show the progress if it has changed; called after each pass of the loop."""
        if self._live:
            shown = (progress, progress.details, int(elapsed))
            if shown != self._shown or not self._drawn:
                width = shutil.get_terminal_size().columns - 1
                print(_CLEAR + visible_line(progress.text(elapsed, live=True))[:width], end="", file=self._err)
                self._drawn = True
            self._shown = shown
        elif self._is_due(progress, elapsed):
            print(visible_line(progress.text(elapsed)), file=self._err)
            self._shown, self._printed_at = (progress, progress.details, 0), elapsed
        self.flush()

    def _is_due(self, progress: ProgressLine, elapsed: float) -> bool:
        """Whether a line is due where lines stay: if the state changes, and for other steps now and then."""
        if self._shown is None or progress != self._shown[0]:
            return True
        waited = elapsed - self._printed_at >= DETAILS_SECONDS or not self._shown[1]
        return waited and progress.details != self._shown[1]

    def flush(self) -> None:
        """Flush both streams."""
        self._out.flush()
        self._err.flush()

    def close(self) -> None:
        """Clear the progress line and flush both streams."""
        self._wipe()
        self.flush()

    def _wipe(self) -> None:
        if self._drawn:
            self._out.flush()
            print(_CLEAR, end="", file=self._err, flush=True)
            self._drawn = False
