"""One connection: lines in, messages out, and an end that nobody can drag out."""

import asyncio

from pytorchjob_agent.protocol import LINE_LIMIT, FromAgent, Message, ProtocolError, Refused, read_from_agent
from pytorchjob_operator.coordinator.limits import Limits


class Peer:
    """An agent's connection, by its number."""

    __slots__ = ("_limits", "_reader", "_writer", "index", "job", "link")

    def __init__(self, link: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Limits) -> None:
        """Take over an open connection; `job` and `index` are set once it has proved who it is."""
        self.link = link
        self.job = ""
        self.index = -1
        self._reader, self._writer, self._limits = reader, writer, limits

    @property
    def gone(self) -> bool:
        """Whether nothing more is heard or said here."""
        return self._writer.transport.is_closing()

    async def read(self) -> FromAgent | None:
        """Return the next message, None at the end; raises ProtocolError and OSError."""
        try:
            line = await self._reader.readline()
        except ValueError:
            raise ProtocolError(f"a message of more than {LINE_LIMIT} bytes") from None
        return read_from_agent(line) if line.endswith(b"\n") else None

    def send(self, message: Message) -> None:
        """Say something; who does not read is dropped."""
        transport = self._writer.transport
        if transport.is_closing():
            return
        self._writer.write(message.to_line())
        if transport.get_write_buffer_size() > self._limits.unread:
            transport.abort()

    def refuse(self, refused: Refused) -> None:
        """Say no, and close."""
        self.send(refused)
        self.hang_up()

    def hang_up(self) -> None:
        """Close once everything is said, and in any case soon."""
        transport = self._writer.transport
        if transport.is_closing():
            return
        self._writer.close()
        asyncio.get_running_loop().call_later(self._limits.farewell, transport.abort)

    def abort(self) -> None:
        """Close now."""
        self._writer.transport.abort()
