"""Reads the ends of many logs at once. Each of them, and all together, have a limit."""

import queue
import threading
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from pytorchjob.cluster.api import Cluster, LogRequest
from pytorchjob.cluster.errors import ClusterError

_THREADS = 8
_MOST_BYTES = 64 << 20
"""Of all logs together."""
_MOST_EACH, _LEAST_EACH = 1 << 20, 1 << 15
_LONGEST_LINE = 1 << 16
"""A longer line is left out: what is left of a line that is cut could be half a secret."""


class LogEnd(NamedTuple):
    """The last lines of a log."""

    text: str
    problem: str = ""
    """Why there is no more of it; empty if nothing failed."""


def read_log_ends(cluster: Cluster, requests: Mapping[str, LogRequest]) -> dict[str, LogEnd]:
    """Return what these requests give, by their names; a failed one has its problem."""
    todo: queue.SimpleQueue[tuple[str, LogRequest] | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, LogEnd | BaseException]] = queue.SimpleQueue()
    most = max(min(_MOST_BYTES // max(len(requests), 1), _MOST_EACH), _LEAST_EACH)

    def work() -> None:
        while (item := todo.get()) is not None:
            name, request = item
            try:
                done.put((name, _read(cluster, request, most)))
            except BaseException as error:  # the caller raises it
                done.put((name, error))

    for item in requests.items():
        todo.put(item)
    for _ in range(_THREADS):
        todo.put(None)
        threading.Thread(target=work, daemon=True).start()
    found = dict(done.get() for _ in requests)
    return {name: _raised(found[name]) for name in requests}


def _raised(found: LogEnd | BaseException) -> LogEnd:
    if isinstance(found, BaseException):
        raise found
    return found


def _read(cluster: Cluster, request: LogRequest, most: int) -> LogEnd:
    lines: deque[bytes] = deque()
    size, problem = 0, ""
    try:
        with cluster.log(request) as stream:
            for raw in stream:
                line = raw if len(raw) <= _LONGEST_LINE else b"[a line of %d bytes is left out]\n" % len(raw)
                lines.append(line)
                size += len(line)
                while size > most:
                    size -= len(lines.popleft())
    except ClusterError as error:
        problem = error.message
    return LogEnd(b"".join(lines).decode(errors="replace"), problem)
