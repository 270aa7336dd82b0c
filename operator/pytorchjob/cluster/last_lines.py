"""Reads the last line that each running pod of a job has written, all at once, and waits a short time for them."""

import queue
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from pytorchjob.cluster.api import Cluster, LogRequest
from pytorchjob.cluster.errors import ClusterError
from pytorchjob.view.seen import MOST_LOGS
from pytorchjob_operator.names import CONTAINER
from pytorchjob_operator.problem import read_time

_THREADS = 16
_SECONDS = 2.0
"""A node that does not answer must not delay the screen."""


class LastLine(NamedTuple):
    """The end of a log."""

    text: str = ""
    at: datetime | None = None
    """When the line was printed, by the node's clock; None: the container has printed no line."""


def read_last_lines(cluster: Cluster, pods: Sequence[str], seconds: float = _SECONDS) -> dict[str, LastLine]:
    """Return the last lines by pod; without those that did not arrive in time, or that this person may not read."""
    found: dict[str, LastLine] = {}
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    for pod in pods[:MOST_LOGS]:
        left.put(pod)
    threads = min(_THREADS, left.qsize())
    working, done = [threads], threading.Condition()

    def work() -> None:
        while (pod := _next(left)) is not None:
            if (line := _last_line(cluster, pod)) is not None:
                found[pod] = line
        with done:
            working[0] -= 1
            done.notify_all()

    for _ in range(threads):
        threading.Thread(target=work, daemon=True).start()
    with done:
        done.wait_for(lambda: working[0] == 0, seconds)
    return dict(found)


def _next(left: "queue.SimpleQueue[str]") -> str | None:
    try:
        return left.get_nowait()
    except queue.Empty:
        return None


def _last_line(cluster: Cluster, pod: str) -> LastLine | None:
    """Return the last line; None if the log cannot be read."""
    try:
        with cluster.log(LogRequest(pod, CONTAINER, tail=1)) as lines:
            text = next(iter(lines), b"").decode(errors="replace").strip()
    except ClusterError:
        return None
    moment, _, line = text.partition(" ")
    return LastLine(line, read_time(moment))
