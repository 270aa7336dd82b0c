"""One connection: lines in, messages out, and an end that nobody can drag out.

There are thousands, so each is this one object and the transport that asyncio gives it: no task, no streams.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from pytorchjob_agent.contract.messages import LINE_LIMIT, Message, Refused
from pytorchjob_operator.coordinator.limits import Bucket, Limits


class Host(Protocol):
    """Who hears what peers say; nothing that it does may raise."""

    def heard(self, peer: "Peer", line: bytes) -> None:
        """A peer has said something: one line with its newline."""

    def heard_too_much(self, peer: "Peer") -> None:
        """A line has passed its limit and has no end yet."""

    def left(self, peer: "Peer") -> None:
        """A peer says nothing more; it may be told twice."""

    def closed(self, peer: "Peer") -> None:
        """The connection is closed; this comes last, and once."""


class Peer(asyncio.Protocol):
    """An agent's connection, by its number."""

    __slots__ = ("_host", "_limits", "_pending", "_timer", "_transport", "bucket", "index", "job", "link", "opening")

    def __init__(self, link: int, limits: Limits, host: Host) -> None:
        """Be ready for a connection; `job`, `index` and `bucket` are set once it has proved who it is."""
        self.link = link
        self.job = ""
        self.index = -1
        self.bucket: Bucket | None = None
        self.opening: asyncio.Task[Any] | None = None
        """What opens it: TLS takes its time."""
        self._limits, self._host = limits, host
        self._pending = bytearray()
        """The line that has no end yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def is_open(self) -> bool:
        """Whether it was opened, over TLS where there is TLS; it stays so to the end."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; asyncio calls it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand on the lines that are whole by now, as long as they are welcome; asyncio calls it."""
        pending, transport = self._pending, self._transport
        assert transport is not None
        if transport.is_closing():
            return
        searched, start = len(pending), 0  # a line that drips in is not searched from its beginning each time
        pending += data
        while not transport.is_closing() and (end := pending.find(b"\n", max(start, searched)) + 1):
            self._host.heard(self, bytes(pending[start:end]))
            start = end
        del pending[:start]
        if len(pending) > LINE_LIMIT:
            pending.clear()
            if not transport.is_closing():
                self._host.heard_too_much(self)

    def eof_received(self) -> None:
        """The other side has said all: asyncio closes once everything is said, and we see that it comes to that."""
        self._host.left(self)
        self.within(self._limits.farewell, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Make an end; asyncio calls it."""
        self.stop_timer()
        self._host.left(self)
        self._host.closed(self)

    def within(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """Have something done after so many seconds, in place of what was to be done before, unless it is stopped."""
        self.stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, otherwise)

    def stop_timer(self) -> None:
        """Nothing needs to be done any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send(self, message: Message) -> None:
        """Say something; who does not read is dropped."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(message.to_line())
        if transport.get_write_buffer_size() > self._limits.unread:
            transport.abort()

    def refuse(self, refused: Refused) -> None:
        """Say no, and close."""
        self.send(refused)
        self.hang_up()

    def hang_up(self) -> None:
        """Close once everything is said, and in any case soon."""
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
