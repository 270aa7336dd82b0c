"""TLS of one connection in memory: bytes in, bytes out. The event loop's own TLS costs twice the memory and more work.

A session is made once a complete first record has arrived, so a peer that stays silent costs a socket and nothing else.
"""

import ssl
from contextlib import suppress

_RECORD = 16 * 1024
_HANDSHAKE = 22
"""The type of a record of the handshake."""
_HEADER = 5


def save_work(context: ssl.SSLContext) -> None:
    """Send no session tickets: agents never resume one, and two cost a tenth of a handshake."""
    context.num_tickets = 0


def is_complete_record(data: bytes | bytearray) -> bool:
    """Return whether the first record is complete, or is not one of TLS, which a session refuses at once."""
    if not data:
        return False
    if data[0] != _HANDSHAKE:
        return True
    return len(data) >= _HEADER and len(data) >= _HEADER + int.from_bytes(data[3:5], "big")


class TlsSession:
    """The server's side of one TLS connection. Methods raise ssl.SSLError if the peer breaks the protocol."""

    __slots__ = ("_incoming", "_outgoing", "_tls", "ended", "ready")

    def __init__(self, context: ssl.SSLContext) -> None:
        """Wait for the peer's first bytes."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.ready = False
        """True once the handshake is complete."""
        self.ended = False
        """True once the peer has closed its side."""

    def decrypt(self, data: bytes) -> bytes:
        """Take bytes of the peer; return what it sent. The handshake may leave something to send: see `outgoing`."""
        self._incoming.write(data)
        received = bytearray()
        with suppress(ssl.SSLWantReadError):
            if not self.ready:
                self._tls.do_handshake()
                self.ready = True
            while chunk := self._tls.read(_RECORD):
                received += chunk
            self.ended = True
        return bytes(received)

    def encrypt(self, data: bytes) -> bytes:
        """Return the bytes that carry this to the peer; empty before the end of the handshake."""
        if self.ready:
            self._tls.write(data)
        return self.outgoing()

    def outgoing(self) -> bytes:
        """Return what is to be sent now."""
        return self._outgoing.read()

    def close(self) -> bytes:
        """Return the bytes that end the session."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        return self.outgoing()
