"""Keeps one failure from filling the screen: each traceback once, and one line for each consequence of it. Pure.

When a rank fails, its peers lose their connections and print tracebacks of their own, and the same error comes again
after each restart. The filter holds a traceback until its last line shows what it is. The report of a failed job has
the traceback of the process that caused it, if the filter has left that out.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytorchjob_agent.contract.printed_error import (
    BEGIN,
    ELSEWHERE,
    FRAME,
    PrintedError,
    last_error,
    of_traceback,
    reported_workers,
)
from pytorchjob_agent.contract.root_cause import CHILD_FAILED

MAX_HELD = 400
"""Lines of a traceback that are held; a longer one is printed as it comes."""
_MAX_KNOWN = 1000
_RANK = re.compile(r"(?:\[rank(\d+)\]: ?)?")
_NOT_PYTHON = re.compile(r'  File ".+", line \d+')
"""How Python begins with a script that it cannot parse: there is no line `Traceback` before it."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<frozen |/pytorchjob_agent/|/bin/torchrun$")
_CRASH = "Fatal Python error: "
_CRASH_FRAME = re.compile(r'  File "(.+)", line (\d+) in (.+)')
"""How Python begins with a crash in native code, and writes its frames."""
_FEW = 3
"""So many frames of libraries are shown."""
_REPEATED = re.compile(
    r"pytorchjob-agent: (?:WorkerFailed|WorkerHangs): "
    r"|[WE]\d{4} .* torch/distributed/elastic/multiprocessing/api\.py:\d+\] (?:failed \(exitcode|Sending process)"
)
"""Lines of the agent and of torch about a failed worker: the run reports the same failure itself."""


class ScriptPlace(NamedTuple):
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
        self._places: dict[str, ScriptPlace] = {}
        self._doubtful: dict[str, ScriptPlace] = {}
        self._withheld: dict[str, list[str]] = {}
        self._errors: dict[str, PrintedError] = {}
        self._peers: dict[str, PrintedError] = {}
        self._reports: dict[str, PrintedError] = {}
        self._inside: dict[str, list[str]] = {}
        self._last: dict[str, str] = {}
        self._crashed = ""

    def feed(self, label: str, line: str) -> list[str]:
        """Return the lines to print now that the replica has written this one."""
        found = _RANK.match(line)
        assert found is not None  # it matches nothing, too
        key, text = (label, found[1] or ""), line[found.end() :]
        held = self._held.get(key)
        if held is None:
            if text in (BEGIN, ELSEWHERE) or _NOT_PYTHON.fullmatch(text):
                self._held[key] = [line]
                return []
            return self._pass(label, f"rank {key[1]}" if key[1] else label, line, text)
        held.append(line)
        if len(held) < MAX_HELD and (not text or text[0].isspace()):
            return []
        del self._held[key]
        return self._judge(key, held, found[0])

    def flush(self, label: str) -> list[str]:
        """Return what is held of a replica that has ended."""
        keys = [key for key in self._held if key[0] == label]
        return [line for key in keys for line in self._held.pop(key)]

    def place(self, rank: int | None, label: str) -> ScriptPlace | None:
        """Return where the last traceback of a rank, or else of a replica, ends in the user's code."""
        names = (f"rank {rank}", label)
        found = (places.get(name) for name in names for places in (self._places, self._doubtful))
        return next(filter(None, found), None)

    def withheld(self, rank: int | None, label: str) -> list[str]:
        """Return the traceback of a rank, or else of a replica, that was left out as a consequence."""
        return self._withheld.pop(f"rank {rank}", None) or self._withheld.pop(label, [])

    def error(self, label: str) -> PrintedError | None:
        """Return the last error of a replica, but its workers' instead of torchrun's own."""
        return self._errors.get(label) or self._peers.get(label) or self._reports.get(label)

    def reported(self, label: str) -> Sequence[tuple[int, int]]:
        """Return the ranks of a replica that failed, and their exit codes, as torchrun reports them."""
        report = self._reports.get(label)
        return report.workers if report else ()

    def place_in(self, traceback: str) -> ScriptPlace | None:
        """Return where a traceback ends in the user's code."""
        found = next(_places(traceback.splitlines()), None)
        return found and self._from_here(found)

    def last_line(self, label: str) -> str:
        """Return the last line of a replica that is neither of a traceback nor of torchrun's report."""
        return self._last.get(label, "")

    def begin(self, label: str) -> None:
        """Forget the errors of a replica that starts again."""
        for errors in (self._errors, self._peers, self._reports):
            errors.pop(label, None)
        self._inside.pop(label, None)
        self._last.pop(label, None)

    def forget_places(self) -> None:
        """Forget where scripts failed: a new round has begun."""
        self._places.clear()
        self._doubtful.clear()
        self._withheld.clear()

    def _pass(self, label: str, name: str, line: str, text: str) -> list[str]:
        """Return a line outside of tracebacks, unless it only repeats a failure."""
        if text.startswith(_CRASH):
            self._crashed = name
        elif self._crashed == name and (frame := _CRASH_FRAME.match(text)) and not _LIBRARY.search(frame[1]):
            self._note(self._places, label, name, ScriptPlace(frame[1], int(frame[2]), frame[3]))
            self._crashed = ""
        lines = self._inside.get(label)
        if lines is not None:
            lines.append(text)
            if lines[0] == text and len(lines) > 1:  # its last line is as its first one
                del self._inside[label]
                self._reports[label] = PrintedError(
                    (CHILD_FAILED,), "", last_error("\n".join(lines)), reported_workers(lines)
                )
            return [line] if self._verbose else []
        if _REPEATED.match(text):
            return [line] if self._verbose else []
        self._last[label] = text.strip() or self._last.get(label, "")
        return [line]

    def _note(self, places: dict[str, ScriptPlace], label: str, name: str, place: ScriptPlace) -> None:
        place = self._from_here(place)
        places |= {name: place, label: place}

    def _from_here(self, place: ScriptPlace) -> ScriptPlace:
        return place._replace(path=place.path.removeprefix(self._cwd))

    def _judge(self, key: tuple[str, str], lines: list[str], before: str) -> list[str]:
        """Return a traceback, or one line in place of it."""
        label, rank = key
        texts = [line[_end(line) :] for line in lines]
        found = of_traceback(texts)
        if found.is_torchruns:
            self._inside[label] = []
            return lines if self._verbose else []
        name, error = f"rank {rank}" if rank else label, texts[-1]
        place = next(_places(texts), None)
        if found.is_peer_gone:
            self._peers[label] = found
            if place is not None:
                self._note(self._doubtful, label, name, place)
            if self._verbose:
                return lines
            self._withheld |= {name: lines, label: lines}
            return [f"{before}{error} (it may follow from the failure of another process: no traceback yet)"]
        self._errors[label] = found
        if place is not None:
            self._note(self._places, label, name, place)
        content = tuple(texts)
        first = self._known.get(content)
        if first is None and len(self._known) < _MAX_KNOWN:
            self._known[content] = name
        if self._verbose:
            return lines
        if first is None:
            return _without_libraries(lines)
        return [f"{before}{error} (the traceback is the same as that of {first} above)"]


def without_rank(line: str) -> str:
    """Return a line without the rank before it."""
    return line[_end(line) :]


def _end(line: str) -> int:
    found = _RANK.match(line)
    return found.end() if found else 0


def _places(lines: list[str]) -> Iterator[ScriptPlace]:
    """Yield the frames of the user's code in a traceback, from the innermost on."""
    for frame in filter(None, map(FRAME.match, reversed(lines))):
        if not _LIBRARY.search(frame[1]):
            yield ScriptPlace(frame[1], int(frame[2]), frame[3] or "")


def _without_libraries(lines: list[str]) -> list[str]:
    """Return a traceback of the user's code without the frames of libraries; any other one as it is."""
    kept, left_out, skips = [], 0, False
    for line in lines:
        text = line[_end(line) :]
        frame = FRAME.match(text)
        if frame:
            skips = _LIBRARY.search(frame[1]) is not None
            left_out += skips
        elif not text.startswith("    "):
            skips = False
        if not skips:
            kept.append(line)
    if left_out <= _FEW or not any(FRAME.match(line[_end(line) :]) for line in kept):
        return lines
    before = lines[0][: _end(lines[0])]
    return [*kept[:-1], f"{before}  ({left_out} frames of libraries are left out; --verbose shows them)", kept[-1]]
