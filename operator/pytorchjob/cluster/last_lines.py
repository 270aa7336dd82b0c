"""Reads the last line that each running pod of a job has written, all at once, and waits a short time for them."""

import queue
import threading
from collections.abc import Sequence

from pytorchjob.cluster.api import Cluster, LogRequest
from pytorchjob.cluster.errors import ClusterError
from pytorchjob_operator.names import CONTAINER

MOST_PODS = 64
_THREADS = 16
_SECONDS = 2.0
"""A node that does not answer must not delay the screen."""


def read_last_lines(cluster: Cluster, pods: Sequence[str], seconds: float = _SECONDS) -> dict[str, str]:
    """Return the last lines by pod; without those that did not arrive in time, or that this person may not read."""
    found: dict[str, str] = {}
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    for pod in pods[:MOST_PODS]:
        left.put(pod)
    threads = min(_THREADS, left.qsize())
    working, done = [threads], threading.Condition()

    def work() -> None:
        while (pod := _next(left)) is not None:
            if line := _last_line(cluster, pod):
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


def _last_line(cluster: Cluster, pod: str) -> str:
    try:
        with cluster.log(LogRequest(pod, CONTAINER, tail=1)) as lines:
            text = next(iter(lines), b"").decode(errors="replace").strip()
    except ClusterError:
        return ""
    return text.partition(" ")[2]
