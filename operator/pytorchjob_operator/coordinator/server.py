"""The open port: accepts connections, authenticates each first line, and passes on what authenticated agents send.

No peer can hold it up: an unauthenticated connection has a few seconds, their number is limited, and each connection
has a rate. What the messages mean is decided elsewhere.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count

from pytorchjob_agent.contract.messages import (
    LINE_LIMIT,
    FromAgent,
    Hello,
    ProtocolError,
    Refused,
    read_from_agent,
)
from pytorchjob_operator.coordinator import authentication
from pytorchjob_operator.coordinator.authentication import Authenticator
from pytorchjob_operator.coordinator.connection import Connection
from pytorchjob_operator.coordinator.jobs import Jobs
from pytorchjob_operator.coordinator.limits import Bucket, Limits

_log = logging.getLogger(__name__)
_TICK = 0.25
"""Seconds between two ticks of the jobs."""
_LOG_SECONDS = 10.0
"""At most one log line about refused connections in this time."""
_ACCEPTS_AT_ONCE = 64
"""Connections accepted before the others get a turn: with fewer, a busy coordinator would hardly accept any."""
_OUT_OF_FILES_SECONDS = 1.0
"""How long the server accepts nothing after the process ran out of files."""
_CLOSE_SECONDS = 0.01
_DEFECT = "a connection broke because of a defect of the coordinator"
_KERNEL_BUFFER = 64 * 1024
"""Bytes to one peer that the kernel may hold, so that a peer that does not read is noticed soon."""
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class _RefusedError(Exception):
    """Ends a conversation with the reason."""

    def __init__(self, refused: Refused) -> None:
        self.refused = refused


class Server:
    """Serves one listening socket until it is cancelled."""

    def __init__(
        self,
        authenticator: Authenticator,
        jobs: Jobs,
        clock: Callable[[], float],
        ssl_context: ssl.SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`authenticator` checks each hello. Without a context, connections use no TLS."""
        self._authenticator, self._jobs, self._clock, self._ssl = authenticator, jobs, clock, ssl_context
        self._limits = limits or Limits()
        self._numbers = count(1)
        self._all: set[Connection] = set()
        self._unauthenticated: dict[Connection, None] = {}
        """The oldest first."""
        self._room = asyncio.Event()
        self._quiet_until = 0.0
        self.refusals = 0
        """Refused connections since the start, authenticated or not."""

    @property
    def connections(self) -> int:
        """Open connections, including unauthenticated ones."""
        return len(self._all)

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections until cancelled; then close all of them."""
        listener.setblocking(False)
        ticking = asyncio.create_task(self._tick())
        try:
            await self._accept(listener)
        finally:
            ticking.cancel()
            for connection in tuple(self._all):
                connection.abort()
            await asyncio.gather(ticking, return_exceptions=True)
            await asyncio.sleep(_CLOSE_SECONDS)  # asyncio closes the sockets in callbacks

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._jobs.tick()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in count(1):
            await self._make_room()
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:  # out of files, or the peer has gone already
                self._log_rarely("cannot accept connections: %s", error)
                await asyncio.sleep(_OUT_OF_FILES_SECONDS)
                continue
            if len(self._all) >= self._limits.connections:
                self._log_rarely("closed a new connection: %d connections are open, the limit", len(self._all))
                sock.close()
            else:
                self._start(sock)
            if number % _ACCEPTS_AT_ONCE == 0:
                await asyncio.sleep(0)  # accepting never waits while peers connect, and nothing else would run

    async def _make_room(self) -> None:
        """Wait until there is room for an unauthenticated connection; close the oldest one if there is none."""
        if len(self._unauthenticated) < self._limits.unauthenticated:
            return
        self._room.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.patience):
                await self._room.wait()
        if len(self._unauthenticated) >= self._limits.unauthenticated:
            self._log_rarely("closed a connection without a hello: %d others have none", len(self._unauthenticated))
            oldest = next(iter(self._unauthenticated))
            self._drop_unauthenticated(oldest)
            oldest.hang_up()

    def _start(self, sock: socket.socket) -> None:
        """Open a connection in a task of its own, because TLS may take long."""
        connection = Connection(next(self._numbers), self._limits, self)
        self._all.add(connection)
        self._unauthenticated[connection] = None
        connection.within(self._limits.hello, partial(self._too_late, connection))
        connection.opening = asyncio.create_task(self._open(connection, sock))
        connection.opening.add_done_callback(partial(self._opened, connection, sock))

    async def _open(self, connection: Connection, sock: socket.socket) -> None:
        _tune(sock)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection,
            sock,
            ssl=self._ssl,
            ssl_handshake_timeout=self._limits.hello if self._ssl else None,
            ssl_shutdown_timeout=self._limits.farewell if self._ssl else None,
        )

    def _opened(self, connection: Connection, sock: socket.socket, task: asyncio.Task[None]) -> None:
        connection.opening = None
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OSError):  # an OSError: the peer left, or does not speak TLS
            _log.error(_DEFECT, exc_info=error)
        if not connection.is_open:
            sock.close()
            connection.connection_lost(None)  # asyncio calls it for opened connections only

    def _drop_unauthenticated(self, connection: Connection) -> None:
        if connection in self._unauthenticated:
            del self._unauthenticated[connection]
            self._room.set()

    def _too_late(self, connection: Connection) -> None:
        if connection.is_open:
            self._refuse(connection, Refused(f"no hello within {self._limits.hello:g} s", again=True))
        else:
            connection.abort()

    def line_received(self, connection: Connection, line: bytes) -> None:
        """Handle one line: the hello of an unauthenticated connection, or a message of an agent."""
        try:
            message = read_from_agent(line)
            if connection.bucket is None:
                self._authenticate(connection, message)
            else:
                self._pass_on(connection, connection.bucket, message)
        except _RefusedError as error:
            self._refuse(connection, error.refused)
        except ProtocolError as error:
            self._refuse(connection, Refused(str(error)))
        except Exception:  # a defect here must not stop the others
            _log.exception(_DEFECT)
            self.left(connection)
            connection.hang_up()

    def line_too_long(self, connection: Connection) -> None:
        """Refuse a peer that sends a line without an end."""
        self._refuse(connection, Refused(f"a message of more than {LINE_LIMIT} bytes"))

    def left(self, connection: Connection) -> None:
        """The peer sends nothing more, or the server ignores it from now on."""
        self._drop_unauthenticated(connection)
        self._jobs.left(connection)

    def closed(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._all.discard(connection)

    def _authenticate(self, connection: Connection, hello: FromAgent) -> None:
        """Let an agent enter, or refuse it. The order matters: see `authentication`."""
        if not isinstance(hello, Hello):
            raise _RefusedError(Refused("the first message must be hello"))
        rejection = self._authenticator.reject(hello, connection.address)
        if rejection is not None:
            if rejection.report:
                self._jobs.authentication_failed(hello.job, rejection.report)
            raise _RefusedError(rejection.refused)
        stop = self._jobs.stop_for(hello)
        if stop is not None:
            self._drop_unauthenticated(connection)
            connection.send(stop)
            connection.hang_up()
            return
        refused = authentication.refusal(hello, self._jobs.admission(hello.job))
        if refused is not None:
            raise _RefusedError(refused)
        self._enter(connection, hello)

    def _enter(self, connection: Connection, hello: Hello) -> None:
        connection.stop_timer()
        self._drop_unauthenticated(connection)
        connection.bucket = Bucket(self._limits.rate, self._limits.burst, self._clock())
        self._jobs.enter(connection, hello)

    def _pass_on(self, connection: Connection, bucket: Bucket, message: FromAgent) -> None:
        if isinstance(message, Hello):
            raise _RefusedError(Refused("a second hello on one connection"))
        if not bucket.take(self._clock()):
            raise _RefusedError(Refused(f"more than {self._limits.rate:g} messages per second", again=True))
        self._jobs.received(connection, message)

    def _refuse(self, connection: Connection, refused: Refused) -> None:
        self.refusals += 1
        peer = f"a pod of job {connection.job}" if connection.job else "an unauthenticated connection"
        self._log_rarely("refused %s: %s", peer, refused.message)
        self.left(connection)
        connection.refuse(refused)

    def _log_rarely(self, text: str, *details: object) -> None:
        """Log unless a similar line was logged just now: unauthenticated peers must not fill the disk."""
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + _LOG_SECONDS
            _log.warning(text, *details)


def _tune(sock: socket.socket) -> None:
    """Send small messages at once, and let the kernel notice a peer that is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BUFFER)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
