"""What a peer has sent and what was not handled yet: bytes as they came, and lines. Its user bounds the sizes."""

import ssl

from pytorchjob_operator.coordinator.tls import TlsSession, is_complete_record


class Inbound:
    """The receiving half of one connection."""

    __slots__ = ("_lines", "_raw", "_searched")

    def __init__(self) -> None:
        """Start empty."""
        self._raw = bytearray()
        self._lines = bytearray()
        """What the peer sent; `_searched` bytes of it have no newline."""
        self._searched = 0

    def __len__(self) -> int:
        """Return the bytes that wait."""
        return len(self._raw) + len(self._lines)

    @property
    def unread(self) -> int:
        """The bytes that `read` and `decrypt` would take."""
        return len(self._raw)

    def store(self, data: memoryview) -> None:
        """Store what has arrived."""
        self._raw += data

    def is_first_message(self, context: ssl.SSLContext | None, most: int) -> bool:
        """Return whether the first record of TLS, or without it the first line, is complete or too long."""
        if context is not None:
            return is_complete_record(self._raw)
        return b"\n" in self._raw or len(self._raw) > most

    def read(self, session: TlsSession | None) -> int:
        """Take what has arrived out of TLS, if there is any; return the bytes. Raises ssl.SSLError."""
        raw, self._raw = bytes(self._raw), bytearray()
        self._lines += raw if session is None else session.decrypt(raw)
        return len(raw)

    def has_line(self) -> bool:
        """Return whether there is a complete line."""
        return self._end() > 0

    def has_long_line(self, most: int) -> bool:
        """Return whether a line is longer than this and has no end yet."""
        return len(self._lines) > most and not self._end()

    def take_line(self) -> bytes:
        """Remove and return the next line with its newline; empty if none is complete."""
        end = self._end()
        line = bytes(self._lines[:end])
        if end:
            del self._lines[:end]
            self._searched = 0
        return line

    def clear(self) -> None:
        """Drop everything."""
        self._raw, self._lines, self._searched = bytearray(), bytearray(), 0

    def _end(self) -> int:
        end = self._lines.find(b"\n", self._searched) + 1
        if not end:
            self._searched = len(self._lines)  # a slow line is not searched from its start each time
        return end
