"""How a command ends: the sentence, the next step, and the exit status. docs/cli.md has the table of the statuses."""

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from traceback import extract_tb
from typing import NoReturn

from pytorchjob.cluster.errors import (
    ApiServerUnreachable,
    ClusterError,
    Missing,
    NoCluster,
    NoPermission,
    NotInstalled,
    Rejected,
)
from pytorchjob_operator.terminal import say

FAILED = 1
INVALID = 2
NO_ACCESS = 3
MISSING = 4
TIMED_OUT = 124
INTERRUPTED = 130
_NO_OUTPUT = {errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT}

_STATUS: tuple[tuple[type[ClusterError], int], ...] = (
    (Rejected, INVALID),
    (NoCluster, NO_ACCESS),
    (ApiServerUnreachable, NO_ACCESS),
    (NoPermission, NO_ACCESS),
    (NotInstalled, NO_ACCESS),
    (Missing, MISSING),
)


def status_of(error: ClusterError) -> int:
    """Return the exit status for an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), FAILED)


def explain(message: str, remedy: str = "") -> None:
    """Print `error:` and, if there is a next step, `next:` to stderr."""
    say(f"error: {message}", err=True)
    if remedy:
        say(f"next: {remedy}", err=True)


def fail(message: str, remedy: str = "", status: int = FAILED) -> NoReturn:
    """Explain, then end the process with this status."""
    explain(message, remedy)
    sys.exit(status)


def fail_with(error: ClusterError) -> NoReturn:
    """Explain an error of the cluster, then end the process with its status."""
    fail(error.message, error.remedy, status_of(error))


def fail_unexpected(error: Exception) -> NoReturn:
    """Explain what no command expects: an output that takes no more, or a fault of ours with its place."""
    if isinstance(error, OSError) and error.errno in _NO_OUTPUT and not error.filename:
        _drop_output()
        fail(f"the output cannot be written: {error.strerror}", "choose another place for it")
    if isinstance(error, RecursionError):
        fail("an object that the command reads is nested too deeply", "read the object itself: kubectl get -o json")
    last = extract_tb(error.__traceback__)[-1]
    place = f"{Path(last.filename).name}:{last.lineno}"
    fail(
        f"pytorchjob itself failed: {type(error).__name__}: {error} ({place})",
        "open an issue with this line, the command and `pytorchjob version`",
    )


def _drop_output() -> None:
    """Let the interpreter write nowhere at its end what a full disk did not take: it would complain once more."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def suggest(line: str) -> None:
    """Print a next step to stderr, so that a pipe gets the answer alone."""
    say(f"next: {line}", err=True)
