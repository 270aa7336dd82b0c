"""What a person sees of a run: the replicas' lines, what happens, and one progress line.

Lines of replicas go to one stream, everything else to the other. On a terminal the progress line is rewritten in
place, elsewhere it is printed when it changes.
"""

import shutil
from dataclasses import dataclass
from typing import TextIO

from pytorchjob_operator.local import logs

_CLEAR = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    job: str
    state: str
    ready: int
    wanted: int
    restarts: int

    def text(self, elapsed: float) -> str:
        """The progress line."""
        restarts = f"{self.restarts} restart{'' if self.restarts == 1 else 's'}"
        return f"{self.job}: {self.state}, {self.ready}/{self.wanted} ready, {restarts}, {duration(elapsed)}"


def duration(seconds: float) -> str:
    """Seconds as people write them: 12 s, 3 min 4 s, 2 h 3 min."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Screen:
    """Two streams, and the progress line that must not get mixed into them."""

    def __init__(self, out: TextIO, err: TextIO, no_colour: str | None = None) -> None:
        self._out, self._err = out, err
        self._colour = logs.wants_colour(out, no_colour)
        self._live = err.isatty()
        self._shown: tuple[Progress, int] | None = None
        self._drawn = False

    def log(self, label: str, number: int, line: str) -> None:
        """One line of a replica."""
        self._wipe()
        print(logs.prefix(label, colour=number if self._colour else None) + line, file=self._out)

    def say(self, text: str) -> None:
        """Something about the run."""
        self._wipe()
        print(text, file=self._err)

    def progress(self, progress: Progress, elapsed: float) -> None:
        """Show how far the run is, if that is news; called after every round."""
        news = (progress, int(elapsed) if self._live else 0)
        if self._live and (news != self._shown or not self._drawn):
            width = shutil.get_terminal_size().columns - 1
            print(_CLEAR + progress.text(elapsed)[:width], end="", file=self._err)
            self._drawn = True
        elif news != self._shown:
            print(progress.text(elapsed), file=self._err)
        self._shown = news
        self.flush()

    def flush(self) -> None:
        """Show everything that was written."""
        self._out.flush()
        self._err.flush()

    def close(self) -> None:
        """Leave the terminal with a clean line."""
        self._wipe()
        self.flush()

    def _wipe(self) -> None:
        if self._drawn:
            self._out.flush()
            print(_CLEAR, end="", file=self._err, flush=True)
            self._drawn = False
