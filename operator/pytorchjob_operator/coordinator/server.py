"""The open port: accepts connections, authenticates each first line, and passes on what authenticated agents send.

No peer can hold it up. The server never stops accepting: unauthenticated connections displace each other
(`unauthenticated`), have a few seconds, and share a small part of each turn (`turns`). Each agent's connection has a
rate, each job and each namespace has a limit of connections and bytes. What the messages mean is decided elsewhere.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
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
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_agent.contract.unauthenticated import EntryStage, Unauthenticated
from pytorchjob_operator.coordinator import authentication
from pytorchjob_operator.coordinator.authentication import Authenticator
from pytorchjob_operator.coordinator.connection import AgentConnection, Shared
from pytorchjob_operator.coordinator.jobs import Jobs
from pytorchjob_operator.coordinator.limits import Bucket, Limits

_log = logging.getLogger(__name__)
_TICK = 0.25
"""Seconds between two ticks of the jobs."""
_LOG_SECONDS = 10.0
"""At most one log line about refused connections in this time."""
ACCEPTS_AT_ONCE = 32
"""Connections accepted before agents get their turn."""
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_OUT_OF_FILES_SECONDS = 1.0
"""How long the server accepts nothing after the process ran out of files that the server cannot free."""
_CLOSE_SECONDS = 0.01
_DEFECT = "a connection broke because of a defect of the coordinator"
_KERNEL_BUFFER = 64 * 1024
"""Bytes to one peer that the kernel may hold, so that a peer that does not read is noticed soon."""
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_MAPPED = "::ffff:"
"""The form of an IPv4 peer on a socket of both families."""


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
        self._authenticator, self._jobs, self._clock = authenticator, jobs, clock
        self._limits = limits or Limits()
        self._shared = Shared(self._limits, ssl_context, self)
        self._numbers = count(1)
        self._all: set[AgentConnection] = set()
        self._unauthenticated: Unauthenticated[AgentConnection] = Unauthenticated(self._limits.unauthenticated)
        self._quiet_until = 0.0
        self.refusals = 0
        """Refused connections since the start, authenticated or not."""

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Use another certificate for new connections."""
        self._shared = replace(self._shared, ssl=context)

    @property
    def connections(self) -> int:
        """Open connections, including unauthenticated ones."""
        return len(self._all)

    @property
    def displaced(self) -> int:
        """Connections without a hello that made room for others since the start."""
        return self._unauthenticated.displaced

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections until cancelled; then close all of them."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        _tune(listener)
        loop.add_reader(listener, self._accept, listener)
        try:
            while True:
                await asyncio.sleep(_TICK)
                self._jobs.tick()
        finally:
            loop.remove_reader(listener)
            for connection in tuple(self._all):
                connection.abort()
            await asyncio.sleep(_CLOSE_SECONDS)  # asyncio closes the sockets in callbacks

    def _accept(self, listener: socket.socket) -> None:
        """Accept what waits. It is called again while more peers connect."""
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    self._free_file(listener, error)
                    return
                continue  # the peer has gone already
            sock.setblocking(False)
            self._start(sock, str(address[0]).removeprefix(_MAPPED))

    def _free_file(self, listener: socket.socket, error: OSError) -> None:
        """Close an unauthenticated connection for the next one; without any, accept nothing for a moment."""
        self._log_rarely("cannot accept connections: %s", error)
        displaced = self._unauthenticated.displace()
        if displaced is not None:
            displaced.abort()
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(_OUT_OF_FILES_SECONDS, self._accept_again, listener)

    def _accept_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _start(self, sock: socket.socket, address: str) -> None:
        """Watch a new connection until its peer sends something."""
        connection = AgentConnection(next(self._numbers), sock, address, self._shared)
        self._all.add(connection)
        connection.within(self._limits.hello, partial(self._too_late, connection))
        connection.watch()
        self._displace(self._unauthenticated.add(connection, address), EntryStage.SILENT)

    def advanced(self, connection: AgentConnection, stage: EntryStage) -> None:
        """Count a connection that costs more than before; another one may have to go."""
        self._displace(self._unauthenticated.advance(connection, stage), stage)

    def _displace(self, displaced: AgentConnection | None, stage: EntryStage) -> None:
        if displaced is not None:
            most = self._limits.unauthenticated[stage]
            self._log_rarely("closed a connection without a hello: %d others are %s", most, stage.value)
            displaced.abort()

    def _too_late(self, connection: AgentConnection) -> None:
        if connection.can_answer:
            self._refuse(connection, Refused(f"no hello within {self._limits.hello:g} s", again=True))
        else:
            connection.abort()

    def line_received(self, connection: AgentConnection, line: bytes) -> None:
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

    def line_too_long(self, connection: AgentConnection) -> None:
        """Refuse a peer that sends a line without an end."""
        first = connection.bucket is None
        what, most = ("a hello", self._limits.hello_bytes) if first else ("a message", LINE_LIMIT)
        self._refuse(connection, Refused(f"{what} of more than {most} bytes"))

    def held(self, connection: AgentConnection, more: int) -> None:
        """Count the bytes that wait in an agent's connection; refuse it if its job has too many."""
        excess = self._jobs.held(connection, more)
        if excess is not None:
            self._refuse(connection, excess)

    def left(self, connection: AgentConnection) -> None:
        """The peer sends nothing more, or the server ignores it from now on."""
        self._jobs.left(connection)

    def closed(self, connection: AgentConnection) -> None:
        """Forget a closed connection."""
        self._unauthenticated.remove(connection)
        self._all.discard(connection)
        self._jobs.closed(connection)

    def _authenticate(self, connection: AgentConnection, hello: FromAgent) -> None:
        """Let an agent enter, or refuse it. The order matters: see `authentication`."""
        if not isinstance(hello, Hello):
            raise _RefusedError(Refused("the first message must be hello"))
        rejection = self._authenticator.reject(hello, connection.address)
        if rejection is not None:
            if rejection.report:
                self._jobs.authentication_failed(hello.job, TrainingReason.AGENT_REFUSED, rejection.report)
            raise _RefusedError(rejection.refused)
        stop = self._jobs.stop_for(hello)
        if stop is not None:
            connection.send(stop)
            connection.hang_up()
            return
        admission = self._jobs.admission(hello.job)
        refused = authentication.refusal(hello, admission)
        if refused is None and admission is not None and (refused := authentication.no_room(admission)) is not None:
            self._jobs.authentication_failed(hello.job, TrainingReason.AGENT_LIMIT, refused.message)
        if refused is not None:
            raise _RefusedError(refused)
        self._enter(connection, hello)

    def _enter(self, connection: AgentConnection, hello: Hello) -> None:
        connection.stop_timer()
        self._unauthenticated.remove(connection)
        connection.bucket = Bucket(self._limits.rate, self._limits.burst, self._clock())
        self._jobs.enter(connection, hello)

    def _pass_on(self, connection: AgentConnection, bucket: Bucket, message: FromAgent) -> None:
        if isinstance(message, Hello):
            raise _RefusedError(Refused("a second hello on one connection"))
        if not bucket.take(self._clock()):
            raise _RefusedError(Refused(f"more than {self._limits.rate:g} messages per second", again=True))
        self._jobs.received(connection, message)

    def _refuse(self, connection: AgentConnection, refused: Refused) -> None:
        self.refusals += 1
        peer = f"a pod of {connection.title}" if connection.job else "an unauthenticated connection"
        self._log_rarely("refused %s: %s", peer, refused.message)
        self.left(connection)
        connection.refuse(refused)

    def _log_rarely(self, text: str, *details: object) -> None:
        """Log unless a similar line was logged just now: unauthenticated peers must not fill the disk."""
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + _LOG_SECONDS
            _log.warning(text, *details)


def _tune(listener: socket.socket) -> None:
    """Let the kernel notice a peer that is gone, and hold little for each; accepted sockets inherit this."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BUFFER)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BUFFER)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
