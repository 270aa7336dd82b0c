"""What the members of a round trust each other by: a secret that proves membership, and a certificate that encrypts.

The coordinator draws both for each round. All members have the same certificate with its private key. So a member
accepts no other peer, and a program that reads the network learns nothing. Without the operator's TLS there is none.

Reading a certificate costs as much as a connection. So an agent does it once for a round, and keeps no earlier round's.
"""

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from pytorchjob_agent.contract.coordinator_endpoint import SERVER_NAME
from pytorchjob_agent.contract.messages import Assigned, RoundId

_making = threading.Lock()


@dataclass(frozen=True, slots=True)
class RoundKeys:
    """The keys of one round."""

    secret: str = field(default="", repr=False)
    """Empty: no peer is trusted."""
    certificate: str = field(default="", repr=False)
    """A certificate with its private key, as PEM. Empty: connections are not encrypted."""
    round: RoundId | None = None
    """None: unknown, and with it the rank."""
    rank: int = 0
    """This member's own."""

    @classmethod
    def of(cls, assigned: Assigned) -> "RoundKeys":
        """Return the keys that an assignment carries."""
        return cls(assigned.secret, assigned.certificate, assigned.round, assigned.rank)

    def as_client(self, sock: socket.socket) -> socket.socket:
        """Return the connection to use after `connect`. Raises OSError: the peer has not the keys of this round."""
        if not self.certificate:
            return sock
        with _making:
            context = _for_client(self.certificate)
        return context.wrap_socket(sock, server_hostname=SERVER_NAME)

    def server_context(self) -> ssl.SSLContext | None:
        """Return what encrypts the connections of a server; None: nothing does. Raises OSError and ValueError."""
        if not self.certificate:
            return None
        with _making:
            return _for_server(self.certificate)


@lru_cache(maxsize=1)
def _for_client(certificate: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=certificate)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # it is its own authority
    return context


@lru_cache(maxsize=1)
def _for_server(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # a peer resumes no session; TLS 1.2 would let it
    with _in_memory(certificate) as path:
        context.load_cert_chain(path)
    return context


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Give a text the path that OpenSSL wants, without a file that another process could find."""
    file = os.memfd_create("certificate")
    try:
        os.write(file, text.encode())
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)
