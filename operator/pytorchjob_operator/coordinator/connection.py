"""One connection of an agent: lines in, messages out, and an end that the peer cannot delay.

There are thousands. Each is this object and asyncio's transport: no task, no streams.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from pytorchjob_agent.contract.messages import LINE_LIMIT, Message, Refused
from pytorchjob_operator.coordinator.limits import Bucket, Limits


class Receiver(Protocol):
    """Receives what connections read. Its methods must not raise."""

    def line_received(self, connection: "Connection", line: bytes) -> None:
        """The peer sent one line, with its newline."""

    def line_too_long(self, connection: "Connection") -> None:
        """A line exceeds the limit and has no end yet."""

    def left(self, connection: "Connection") -> None:
        """The peer sends nothing more. May be called twice."""

    def closed(self, connection: "Connection") -> None:
        """The connection is closed. The last call, and made once."""


class Connection(asyncio.Protocol):
    """One connection; `number` identifies it."""

    __slots__ = (
        "_limits",
        "_pending",
        "_receiver",
        "_timer",
        "_transport",
        "bucket",
        "index",
        "job",
        "number",
        "opening",
    )

    def __init__(self, number: int, limits: Limits, receiver: Receiver) -> None:
        """Wait for asyncio's transport. `job`, `index` and `bucket` are set after authentication."""
        self.number = number
        self.job = ""
        self.index = -1
        self.bucket: Bucket | None = None
        self.opening: asyncio.Task[Any] | None = None
        """The task that opens it: TLS takes time."""
        self._limits, self._receiver = limits, receiver
        self._pending = bytearray()
        """The part of a line that has arrived."""
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def is_open(self) -> bool:
        """True once it is open, including TLS. It stays True after the end."""
        return self._transport is not None

    @property
    def address(self) -> str:
        """The peer's IP address; empty if it is unknown."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(peer[0]) if peer else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport. Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass on the complete lines, until the connection closes. Called by asyncio."""
        pending, transport = self._pending, self._transport
        assert transport is not None
        if transport.is_closing():
            return
        searched, start = len(pending), 0  # a slow line is not searched from its start each time
        pending += data
        while not transport.is_closing() and (end := pending.find(b"\n", max(start, searched)) + 1):
            self._receiver.line_received(self, bytes(pending[start:end]))
            start = end
        del pending[:start]
        if len(pending) > LINE_LIMIT:
            pending.clear()
            if not transport.is_closing():
                self._receiver.line_too_long(self)

    def eof_received(self) -> None:
        """The peer has closed its side: asyncio closes after the last message, or the timer does."""
        self._receiver.left(self)
        self.within(self._limits.farewell, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end. Called by asyncio."""
        self.stop_timer()
        self._receiver.left(self)
        self._receiver.closed(self)

    def within(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """Call `otherwise` after this many seconds unless the timer is stopped. Replaces an earlier timer."""
        self.stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, otherwise)

    def stop_timer(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send(self, message: Message) -> None:
        """Send a message. A peer that does not read is dropped."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(message.to_line())
        if transport.get_write_buffer_size() > self._limits.unread:
            transport.abort()

    def refuse(self, refused: Refused) -> None:
        """Send a refusal, and close."""
        self.send(refused)
        self.hang_up()

    def hang_up(self) -> None:
        """Close after the last message, and within the farewell limit."""
        transport = self._transport
        if transport is None:
            self.abort()
        elif not transport.is_closing():
            transport.close()
            self.within(self._limits.farewell, self.abort)

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()
