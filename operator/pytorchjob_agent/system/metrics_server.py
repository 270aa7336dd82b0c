"""Serves one text to Prometheus at GET /metrics, one scrape after the other.

Clients that ask for nothing displace each other, and have two seconds. They delay no scrape.
"""

import socket
from collections.abc import Callable
from contextlib import suppress

from pytorchjob_agent.system.console import say
from pytorchjob_agent.system.port import Entrance, NotAdmittedError, Port, Rules, Task

_RULES = Rules(seconds=2.0, most_bytes=4096, threads=1)
_BACKLOG = 1024
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METRICS = b"GET /metrics "


class MetricsServer:
    """Listens on all addresses of the pod from its creation until `close`."""

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        """Listen; raises OSError if the port is taken. `text` is called by another thread, once for each scrape."""
        self._text, self._failed = text, ""
        listener = _listen(port)
        self.port: int = listener.getsockname()[1]
        self._port = Port(listener, "metrics", lambda: Entrance(self._read), _RULES)

    def close(self) -> None:
        """Stop listening."""
        self._port.close()

    def _read(self, request: bytearray) -> Task | None:
        """Answer once the first line is there: the rest of a request says nothing."""
        if len(request) < len(_METRICS) and _METRICS.startswith(bytes(request)):
            return None
        if not request.startswith(_METRICS):
            raise NotAdmittedError(_response("404 Not Found", "only GET /metrics is served\n"))
        return self._answer

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError):
            connection.sendall(self._scraped())
            connection.shutdown(socket.SHUT_WR)

    def _scraped(self) -> bytes:
        """Return the metrics. A defect of theirs fails scrapes, so that it is noticed, and nothing else."""
        try:
            return _response("200 OK", self._text())
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            if words != self._failed:
                say(f"warning: no metrics: {words}")
            self._failed = words
            return _response("500 Internal Server Error", "the metrics could not be read\n")


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # IPv6 may be compiled in and switched off
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=_BACKLOG)


def _response(status: str, text: str) -> bytes:
    body = text.encode(errors="replace")
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
