"""Keeps one failure from filling the screen: each traceback once, and one line for each consequence of it. Pure.

When a rank fails, its peers lose their connections and print tracebacks of their own, and the same error comes again
after each restart. The filter holds a traceback until its last line shows what it is.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from pytorchjob_operator.rounds.budget import sounds_like_consequence

MAX_HELD = 400
"""Lines of a traceback that are held; a longer one is printed as it comes."""
_MAX_KNOWN = 1000
_RANK = re.compile(r"(?:\[rank(\d+)\]: ?)?")
_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(.+)", line (\d+)(?:, in (.+))?')
_NOT_PYTHON = re.compile(r'  File ".+", line \d+')
"""How Python begins with a script that it cannot parse: there is no line `Traceback` before it."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<frozen |/torch/")
_CONSEQUENCES = re.compile(
    r"(?:RuntimeError|ConnectionError|Connection\w+Error|BrokenPipeError|(?:\w+\.)*Dist\w+Error):"
)
"""Types of errors with which torch reports a lost peer."""
_REPEATED = re.compile(
    r"pytorchjob-agent: (?:WorkerFailed|WorkerHangs): "
    r"|[WE]\d{4} .* torch/distributed/elastic/multiprocessing/api\.py:\d+\] (?:failed \(exitcode|Sending process)"
)
"""Lines of the agent and of torch about a failed worker: the run reports the same failure itself."""


class Place(NamedTuple):
    """Where a script failed."""

    path: str
    line: int
    function: str
    """Empty for a script that Python cannot parse."""

    def __str__(self) -> str:
        """Return the place as people write it."""
        return f"{self.path}:{self.line}{f', in {self.function}' if self.function else ''}"


class LogFilter:
    """Filters the lines of all replicas."""

    def __init__(self, *, verbose: bool = False, cwd: str = "") -> None:
        """`verbose`: every line passes. Places below the folder `cwd` are named from there."""
        self._verbose, self._cwd = verbose, f"{cwd}/" if cwd else ""
        self._held: dict[tuple[str, str], list[str]] = {}
        self._known: dict[tuple[str, ...], str] = {}
        self._places: dict[str, Place] = {}

    def feed(self, label: str, line: str) -> list[str]:
        """Return the lines to print now that the replica has written this one."""
        found = _RANK.match(line)
        assert found is not None  # it matches nothing, too
        key, text = (label, found[1] or ""), line[found.end() :]
        held = self._held.get(key)
        if held is None:
            if text == _BEGIN or _NOT_PYTHON.fullmatch(text):
                self._held[key] = [line]
                return []
            return [line] if self._verbose or not _REPEATED.match(text) else []
        held.append(line)
        if len(held) < MAX_HELD and (not text or text[0].isspace()):
            return []
        del self._held[key]
        return self._judge(key, held, text, found[0])

    def flush(self, label: str) -> list[str]:
        """Return what is held of a replica that has ended."""
        keys = [key for key in self._held if key[0] == label]
        return [line for key in keys for line in self._held.pop(key)]

    def place(self, rank: int | None, label: str) -> Place | None:
        """Return where the last traceback of a rank, or else of a replica, ends in the user's code."""
        return self._places.get(f"rank {rank}") or self._places.get(label)

    def forget_places(self) -> None:
        """Forget where scripts failed: a new round has begun."""
        self._places.clear()

    def _judge(self, key: tuple[str, str], lines: list[str], error: str, before: str) -> list[str]:
        """Return a traceback, or one line in place of it."""
        label, rank = key
        if _CONSEQUENCES.match(error) and sounds_like_consequence(error):
            note = "follows from the failure of another process; its traceback is left out"
            return lines if self._verbose else [f"{before}{error} ({note})"]
        name = f"rank {rank}" if rank else label
        place = next(_places(lines), None)
        if place is not None:
            place = place._replace(path=place.path.removeprefix(self._cwd))
            self._places |= {name: place, label: place}
        content = tuple(line[_end(line) :] for line in lines)
        first = self._known.get(content)
        if first is None and len(self._known) < _MAX_KNOWN:
            self._known[content] = name
        if first is None or self._verbose:
            return lines
        return [f"{before}{error} (the traceback is the same as that of {first} above)"]


def without_rank(line: str) -> str:
    """Return a line without the rank before it."""
    return line[_end(line) :]


def _end(line: str) -> int:
    found = _RANK.match(line)
    return found.end() if found else 0


def _places(lines: list[str]) -> Iterator[Place]:
    """Yield the frames of a traceback, those of the user's code first, each from the innermost on."""
    frames = [_FRAME.match(without_rank(line)) for line in reversed(lines)]
    found = [Place(frame[1], int(frame[2]), frame[3] or "") for frame in frames if frame]
    yield from (place for place in found if not _LIBRARY.search(place.path))
    yield from found
