"""What the members of a round trust each other by: a secret that proves membership, and a certificate that encrypts.

The coordinator draws both for each round. All members have the same certificate with its private key. So a member
accepts no other peer, and a program that reads the network learns nothing. Without the operator's TLS there is none.
"""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pytorchjob_agent.contract.coordinator_endpoint import SERVER_NAME
from pytorchjob_agent.contract.messages import Assigned


@dataclass(frozen=True, slots=True)
class RoundKeys:
    """The keys of one round."""

    secret: str = field(default="", repr=False)
    """Empty: no peer is trusted."""
    certificate: str = field(default="", repr=False)
    """A certificate with its private key, as PEM. Empty: connections are not encrypted."""

    @classmethod
    def of(cls, assigned: Assigned) -> "RoundKeys":
        """Return the keys that an assignment carries."""
        return cls(assigned.secret, assigned.certificate)

    def as_client(self, sock: socket.socket) -> socket.socket:
        """Return the connection to use after `connect`. Raises OSError: the peer has not the keys of this round."""
        if not self.certificate:
            return sock
        context = ssl.create_default_context(cadata=self.certificate)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # it is its own authority
        return context.wrap_socket(sock, server_hostname=SERVER_NAME)

    def as_server(self, sock: socket.socket) -> socket.socket:
        """Return the connection to use after `accept`. Raises OSError: the peer has not the keys of this round."""
        if not self.certificate:
            return sock
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # a peer resumes no session
        with _in_memory(self.certificate) as path:
            context.load_cert_chain(path)
        return context.wrap_socket(sock, server_side=True)


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Give a text the path that OpenSSL wants, without a file that another process could find."""
    file = os.memfd_create("certificate")
    try:
        os.write(file, text.encode())
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)
