"""Serves one text to Prometheus at GET /metrics, in a thread of its own.

It answers one connection after the other, and gives each of them two seconds to ask and two to read: a client that does
neither delays the next scrape, and nothing else.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

_SECONDS = 2.0
_LONGEST = 4096
"""Bytes of a request that are read; Prometheus sends fewer, in one piece."""
_WAITING = 4
"""Connections that may wait for their turn."""
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Listens on all addresses of the pod from its creation until `close`."""

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        """Listen; raises OSError if the port is taken. `text` is called by another thread, once for each scrape."""
        self._text = text
        self._listener = _listen(port)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Wait for an answer that is being sent, at most for its time limit."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which `close` alone does not
        self._thread.join(2 * _SECONDS)
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(_SECONDS)
                connection.sendall(self._answer(connection.recv(_LONGEST)))
                connection.shutdown(socket.SHUT_WR)

    def _answer(self, request: bytes) -> bytes:
        if request.split(b" ")[:2] != [b"GET", b"/metrics"]:
            return _response("404 Not Found", "only GET /metrics is served\n")
        return _response("200 OK", self._text())


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # IPv6 may be compiled in and switched off
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=_WAITING, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=_WAITING)


def _response(status: str, text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
