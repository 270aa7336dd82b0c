"""One connection of an agent: lines in, messages out, and an end that the peer cannot delay.

There are thousands. A connection that has sent nothing is a watched socket. Its first byte makes it a transport of
asyncio, a complete first record of TLS makes it a TLS session. What it reads waits for its turn (`turns`).
"""

import asyncio
import math
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from pytorchjob_agent.contract.messages import LINE_LIMIT, Message, Refused
from pytorchjob_agent.contract.unauthenticated import EntryStage, group
from pytorchjob_operator.coordinator.inbound import Inbound
from pytorchjob_operator.coordinator.limits import Bucket, Limits
from pytorchjob_operator.coordinator.opening import Opening
from pytorchjob_operator.coordinator.tls import TlsSession
from pytorchjob_operator.coordinator.turns import UNIT, Turns
from pytorchjob_operator.coordinator.usage import UNNAMED

_READ = 16 * 1024
"""Bytes read from one connection at once, and stored of it before it is read no more."""
_CHEAP = 1024
"""Bytes of a first message that cost next to nothing."""
_MESSAGE_COST = 1024
"""The cost of a message beside its bytes."""
_LONGEST_OUTBOX = 1000
_MOST_DROPPED = 1024 * 1024
"""Bytes of a peer that are dropped after its end: a connection closed before them may lose the last message."""


class Receiver(Protocol):
    """Receives what connections read. Its methods must not raise."""

    def advanced(self, connection: "AgentConnection", stage: EntryStage) -> None:
        """A connection without an accepted hello costs more than before."""

    def line_received(self, connection: "AgentConnection", line: bytes) -> None:
        """The peer sent one line, with its newline."""

    def line_too_long(self, connection: "AgentConnection") -> None:
        """A line exceeds the limit and has no end yet."""

    def held(self, connection: "AgentConnection", more: int) -> None:
        """The bytes that wait in an authenticated connection have changed by this number."""

    def left(self, connection: "AgentConnection") -> None:
        """The peer sends nothing more. May be called twice."""

    def closed(self, connection: "AgentConnection") -> None:
        """The connection is closed. The last call, and made once."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections of a server have in common."""

    limits: Limits
    ssl: ssl.SSLContext | None
    receiver: Receiver
    turns: Turns = field(default_factory=Turns)
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(_READ)))
    """What asyncio reads into; its content is copied at once."""


class AgentConnection(asyncio.BufferedProtocol):
    """One connection; `number` identifies it."""

    __slots__ = (
        "_closing",
        "_dropped",
        "_eof",
        "_group",
        "_held",
        "_inbound",
        "_opening",
        "_outbox",
        "_paused",
        "_queued",
        "_shared",
        "_timer",
        "_tls",
        "_transport",
        "address",
        "bucket",
        "index",
        "job",
        "number",
        "title",
    )

    def __init__(self, number: int, sock: socket.socket, address: str, shared: Shared) -> None:
        """Take an accepted socket. `job`, `title`, `index` and `bucket` are set after authentication."""
        self.number, self.address = number, address
        self.job, self.title = "", UNNAMED
        self.index = -1
        self.bucket: Bucket | None = None
        self._shared, self._group = shared, group(address)
        self._opening: Opening | None = Opening(
            sock,
            connect=lambda: self,
            started=lambda: shared.receiver.advanced(self, EntryStage.STARTED),
            lost=lambda: self.connection_lost(None),
            taken=lambda: self._transport is not None,
        )
        self._transport: asyncio.Transport | None = None
        self._tls: TlsSession | None = None
        self._inbound = Inbound()
        self._outbox: list[Message] = []
        self._eof = self._paused = self._queued = self._closing = False
        self._held = self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def can_answer(self) -> bool:
        """True if a message would reach the peer: there is no TLS, or its handshake is complete."""
        return self._shared.ssl is None or (self._tls is not None and self._tls.ready)

    def watch(self) -> None:
        """Wait for the first byte."""
        assert self._opening is not None
        self._opening.watch()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport. Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._opening = transport, None

    # In.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where asyncio puts what it reads."""
        return self._shared.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Store what was read until it is this connection's turn. Called by asyncio."""
        transport = self._transport
        assert transport is not None
        if self._closing:
            self._drop(nbytes)
            return
        self._inbound.store(self._shared.buffer[:nbytes])
        if self._inbound.unread >= _READ and not self._paused:
            transport.pause_reading()
            self._paused = True
        if self._has_work():
            self._queue()
        elif self._inbound.unread > _CHEAP:
            self._shared.receiver.advanced(self, EntryStage.COSTLY)

    def _drop(self, nbytes: int) -> None:
        self._dropped += nbytes
        if self._dropped > _MOST_DROPPED:
            self.abort()

    def _has_work(self) -> bool:
        """Return whether a turn would do anything. The start of a first message waits for the rest of it."""
        if self.bucket is not None or self._tls is not None or self._paused:
            return True
        return self._inbound.is_first_message(self._shared.ssl, self._shared.limits.hello_bytes)

    def _queue(self) -> None:
        if self._queued:
            return
        self._queued = True
        if self.bucket is not None:
            self._shared.turns.add_member(self, self.title.namespace, self.job)
        else:
            self._shared.turns.add_unauthenticated(self, self._group, begun=self._tls is not None)

    def work(self) -> int:
        """Send and handle what waits, up to a unit; return the cost. Called by `turns`."""
        self._queued = False
        transport = self._transport
        if transport is None or self._closing:
            return 0
        try:
            cost = self._read() + self._handle(UNIT) + self._flush()
        except ssl.SSLError:  # not TLS, or broken: there is no way to answer
            self.abort()
            return UNIT
        self._account()
        self._continue(transport)
        return cost

    def _continue(self, transport: asyncio.Transport) -> None:
        """Take another turn, read more, or end."""
        if self._closing:
            return
        if self._inbound.has_line() or self._outbox:
            self._queue()
        elif self._eof:
            self._shared.receiver.left(self)
            self.hang_up()
        elif self._paused:
            self._paused = False
            transport.resume_reading()

    def _read(self) -> int:
        """Take what has arrived out of TLS; return the bytes."""
        if not self._inbound.unread:
            return 0
        if self._shared.ssl is None:
            return self._inbound.read(None)
        if self._tls is None:
            self._shared.receiver.advanced(self, EntryStage.COSTLY)
            self._tls = TlsSession(self._shared.ssl)
        try:
            return self._inbound.read(self._tls)
        finally:
            self._write(self._tls.outgoing())
            self._eof = self._eof or self._tls.ended

    def _handle(self, most: float) -> int:
        """Handle complete lines until their cost is reached; return the cost."""
        cost, receiver = 0, self._shared.receiver
        while cost < most and not self._closing and (line := self._inbound.take_line()):
            cost += len(line) + _MESSAGE_COST
            if len(line) > self._limit():
                receiver.line_too_long(self)
            else:
                receiver.line_received(self, line)
        if not self._closing and self._inbound.has_long_line(self._limit()):
            self._inbound.clear()
            receiver.line_too_long(self)
        return cost

    def _limit(self) -> int:
        return LINE_LIMIT if self.bucket is not None else self._shared.limits.hello_bytes

    def eof_received(self) -> bool:
        """The peer has closed its side. What it sent before has its turn first. Called by asyncio."""
        self._eof = True
        if self._closing and self._transport is not None:
            self._transport.close()
        else:
            self._queue()
        return True  # the end is ours to make

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle what the peer sent before it left, and report the end. Called by asyncio."""
        self.stop_timer()
        if self.bucket is not None and not self._closing:
            with suppress(ssl.SSLError):
                self._read()
            self._handle(math.inf)
        self._closing, self._opening = True, None
        self._shared.receiver.left(self)
        self._inbound.clear()
        self._account()
        self._shared.receiver.closed(self)

    # Out.

    def send(self, message: Message) -> None:
        """Send a message at this connection's turn. A peer that does not read is dropped."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._outbox.append(message)
        if len(self._outbox) > _LONGEST_OUTBOX:
            self.abort()
        else:
            self._queue()

    def _flush(self) -> int:
        """Write the messages that wait; return their bytes."""
        if not self._outbox:
            return 0
        data = b"".join(message.to_line() for message in self._outbox)
        self._outbox.clear()
        self._write(data if self._shared.ssl is None else self._tls.encrypt(data) if self._tls else b"")
        return len(data)

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if not data or transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > self._shared.limits.unread:
            self.abort()

    def _account(self) -> None:
        """Report the bytes that wait here, if they are more than a few."""
        held = len(self._inbound)
        if self._transport is not None and not self._transport.is_closing():
            held += self._transport.get_write_buffer_size()
        held = held if held > UNIT else 0
        if held != self._held and self.bucket is not None:
            more, self._held = held - self._held, held
            self._shared.receiver.held(self, more)

    # The end.

    def within(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """Call `otherwise` after this many seconds unless the timer is stopped. Replaces an earlier timer."""
        self.stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, otherwise)

    def stop_timer(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def refuse(self, refused: Refused) -> None:
        """Send a refusal, and close."""
        if self._opening is not None and self._shared.ssl is None:
            self._opening.send(refused.to_line())
        self.send(refused)
        self.hang_up()

    def hang_up(self) -> None:
        """Close after the last message and the peer's end, and within the farewell limit."""
        transport = self._transport
        if transport is None:
            self.abort()
        elif not self._closing:
            self._closing = True
            with suppress(ssl.SSLError):
                self._flush()
                self._write(self._tls.close() if self._tls else b"")
            self._inbound.clear()
            self._account()
            self._finish(transport)

    def _finish(self, transport: asyncio.Transport) -> None:
        if transport.is_closing():
            return
        if self._eof:
            transport.close()
        else:
            with suppress(OSError):  # the peer has just reset the connection: reading will end it
                transport.write_eof()
            if self._paused:
                transport.resume_reading()
        self.within(self._shared.limits.farewell, self.abort)

    def abort(self) -> None:
        """Close now."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
        elif self._opening is not None:
            self._opening.close()
