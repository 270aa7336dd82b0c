"""Serves Kubeflow Trainer's progress contract to the workers of one round, on the loopback address.

A worker knows the address and the token file from its environment. One thread serves all connections: none can block
another one, and each is closed after two seconds. A library posts in the training loop, so an answer must not wait.
"""

import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytorchjob_agent.script import status_request
from pytorchjob_agent.script.observation import Observation
from pytorchjob_agent.script.status_request import SERVER_URL, TOKEN_FILE, RefusedRequest
from pytorchjob_agent.system.alarm import Alarm
from pytorchjob_agent.system.ports import LOOPBACK

_CONNECTIONS = 16
_SECONDS = 2.0
"""How long a connection may take."""
_RETRY = 0.1
_REQUESTS = 20
"""How many connections are served in a second: each worker posts once in five seconds."""


@dataclass(slots=True, eq=False)
class _Connection:
    socket: socket.socket
    deadline: float
    allowed: bool
    """False: too many came before it in this second."""
    data: bytearray = field(default_factory=bytearray)


class StatusServer:
    """The server of one round."""

    def __init__(self, directory: Path, accept: Callable[[int, Observation], None]) -> None:
        """Listen, and write the token file below `directory`; `accept` gets each observation with its local rank.

        Raises OSError if the pod has no loopback address, or the directory cannot be written.
        """
        self._accept = accept
        self._token = secrets.token_urlsafe(32)
        self._token_file = directory / "trainer-token"
        fd = os.open(self._token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            file.write(self._token)
        self._listener = socket.create_server((LOOPBACK, 0), backlog=_CONNECTIONS)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[_Connection] = []
        self._second, self._served = 0, 0
        self._end = Alarm()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._end, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="trainer status", daemon=True)
        self._thread.start()

    def env(self, local_rank: int, own: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that this worker needs; none if `own`, the pod's environment, names another server."""
        if own.get(SERVER_URL):
            return {}
        url = f"http://{LOOPBACK}:{self.port}{status_request.path(local_rank)}"
        return {SERVER_URL: url, TOKEN_FILE: str(self._token_file), **_direct(own)}

    def close(self) -> None:
        """Stop to serve, and close all connections."""
        self._end.ring()
        self._thread.join()
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.close()
        self._listener.close()
        self._end.close()
        self._token_file.unlink(missing_ok=True)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select(self._pause()):
                if key.fileobj is self._end:
                    return
                if key.data is None:
                    self._open()
                else:
                    self._serve(key.data)
            now = time.monotonic()
            for connection in [each for each in self._connections if each.deadline <= now]:
                self._drop(connection)

    def _pause(self) -> float | None:
        deadlines = [connection.deadline for connection in self._connections]
        return max(min(deadlines) - time.monotonic(), 0.0) if deadlines else None

    def _open(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            time.sleep(_RETRY)  # without a free descriptor the listener stays readable
            return
        accepted.setblocking(False)
        connection = _Connection(accepted, time.monotonic() + _SECONDS, self._allowed())
        self._connections.append(connection)
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        if len(self._connections) > _CONNECTIONS:
            self._drop(self._connections[0])

    def _allowed(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._served = second, 0
        self._served += 1
        return self._served <= _REQUESTS

    def _serve(self, connection: _Connection) -> None:
        if connection not in self._connections:
            return  # dropped for a newer one a moment ago
        try:
            data = connection.socket.recv(64 * 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        connection.data += data
        try:
            request = status_request.read_request(bytes(connection.data), self._token)
        except RefusedRequest as refused:
            self._finish(connection, refused.status, str(refused))
            return
        if request is not None and not connection.allowed:
            self._finish(connection, 429, f"more than {_REQUESTS} requests in a second")
        elif request is not None:
            self._accept(request.local_rank, request.observation)
            self._finish(connection, 200)

    def _finish(self, connection: _Connection, status: int, message: str = "") -> None:
        with suppress(OSError):  # the worker has gone
            connection.socket.send(status_request.answer(status, message))
            connection.socket.shutdown(socket.SHUT_WR)
        self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self._connections.remove(connection)
        with suppress(KeyError):  # never registered
            self._selector.unregister(connection.socket)
        connection.socket.close()


def _direct(own: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that keeps these requests, and their token, away from the proxy of a company."""
    if not any(own.get(name) for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")):
        return {}
    listed = own.get("no_proxy") or own.get("NO_PROXY") or ""
    hosts = [host.strip() for host in listed.split(",") if host.strip()]
    return {} if "*" in hosts or LOOPBACK in hosts else {"no_proxy": ",".join([*hosts, LOOPBACK])}
