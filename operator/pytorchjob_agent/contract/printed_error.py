"""Reads the errors in what a program has printed: Python's tracebacks, and torchrun's report of its workers. Pure."""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from .root_cause import CHILD_FAILED, Evidence, doubt, is_peer_gone
from .termination import exit_code_of

BEGIN = "Traceback (most recent call last):"
ELSEWHERE = f"Original {BEGIN}"
"""How torch begins with the traceback of another process, such as a DataLoader's."""
FRAME = re.compile(r'  File "(.+)", line (\d+)(?:, in (.+))?')
_PREFIX = re.compile(r"(?:\[(?:rank\d+|[\w.-]+)\]: ?)?")
_ERROR = re.compile(r"(?P<kind>[A-Za-z_][\w.]*)(?::.*)?")
_HOOKS = "backends|collectives|shrink|shrink_torch"
_PACKAGE = re.compile(rf"(?:.*/(?=pytorchjob_(?:{_HOOKS})\.py$)|/(?:site|dist)-packages/)(.+)\.py$")
"""What a file is imported as, in a package or, of the agent's hooks for collectives, wherever the agent lies."""
_RULE = re.compile(r"[=-]{20,}")
"""A line of torchrun's report."""
_FIELD = re.compile(r"  (?P<name>rank|exitcode) +: (?P<value>-?\d+)")


class PrintedError(NamedTuple):
    """An error that was printed with its traceback."""

    errors: tuple[str, ...]
    raised_in: str
    text: str
    """The error in one line."""
    workers: Sequence[tuple[int, int]] = ()
    """Of torchrun's report: the ranks that failed and their exit codes; the one that it saw first comes first."""

    @property
    def is_torchruns(self) -> bool:
        """True for the error with which torchrun ends after its workers have failed."""
        return CHILD_FAILED in self.errors

    @property
    def is_peer_gone(self) -> bool:
        """True if the error says no more than that a peer is gone."""
        return is_peer_gone(self.errors, self.raised_in)


def of_traceback(lines: Sequence[str]) -> PrintedError:
    """Return the error of a traceback whose last line names it."""
    frames = [found[1] for line in lines if (found := FRAME.match(line))]
    error = next((line.strip() for line in reversed(lines) if line.strip()), "")
    kind = _ERROR.fullmatch(error)
    module = _PACKAGE.search(frames[-1]) if frames else None
    return PrintedError((kind["kind"],) if kind else (), module[1].replace("/", ".") if module else "", error)


def is_rule(line: str) -> bool:
    """Return whether a line is one of those that frame torchrun's report."""
    return _RULE.fullmatch(line.strip()) is not None


def last_error(text: str) -> str:
    """Return the last error in a program's output, but its workers' instead of torchrun's own; else the last line."""
    lines = [line[match.end() :] for line in text.splitlines() if (match := _PREFIX.match(line))]
    found = [error for error in map(of_traceback, tracebacks(lines)) if error.errors]
    own = [error for error in found if not error.is_torchruns]
    causes = [error for error in own if not error.is_peer_gone]
    killed = killed_worker(lines)
    if own and len(found) > len(own) and (causes or killed is None):
        return (causes or own)[-1].text
    if worker := killed or next(iter(reported_workers(lines)), None):
        return f"rank {worker[0]} exited with code {worker[1]} (torchrun)"
    return next((line.strip() for line in reversed(lines) if line.strip() and not is_rule(line)), "")


def reported_workers(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return the ranks that failed and their exit codes, by torchrun's report: the one that it saw first comes first.

    Of workers that fail within a tenth of a second it takes any for the first one.
    """
    values = [(match["name"], int(match["value"])) for line in lines if (match := _FIELD.match(line))]
    pairs = itertools.pairwise(values)
    workers = [(rank, code) for (first, rank), (then, code) in pairs if (first, then) == ("rank", "exitcode")]
    return workers[::-1] if any(map(is_rule, lines)) else []


def killed_worker(lines: Sequence[str]) -> tuple[int, int] | None:
    """Return the rank that a signal has ended, and not because of another one's failure, and the signal below zero."""
    found = (each for each in reported_workers(lines) if each[1] < 0)
    return next((each for each in found if not doubt(Evidence(0.0, each[0], exit_code_of(each[1])))), None)


def tracebacks(lines: Sequence[str]) -> list[list[str]]:
    """Return the tracebacks in these lines, each from its first line to the error."""
    found: list[list[str]] = []
    current: list[str] | None = None
    for line in lines:
        if line in (BEGIN, ELSEWHERE):
            current = [line]
        elif current is not None:
            current.append(line)
            if line and not line[0].isspace():
                found.append(current)
                current = None
    return found
