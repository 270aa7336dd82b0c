"""What the members of a round trust each other by: a secret that proves membership, and a certificate that encrypts.

The coordinator draws both for each round. Each member has a certificate of its own, which names its rank. Nobody keeps
what has signed them. So a member accepts no other peer, knows which member it talks to, and a program that reads the
network learns nothing. Without the operator's TLS there is none, and each member could pose as another one.

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
from typing import cast

from pytorchjob_agent.contract.coordinator_endpoint import SERVER_NAME, member_name, rank_of
from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.exchange.wire import CALL_SECONDS

_making = threading.Lock()
_BEGIN = "-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class RoundKeys:
    """The keys of one round."""

    secret: str = field(default="", repr=False)
    """Empty: no peer is trusted."""
    certificate: str = field(default="", repr=False)
    """A certificate, its private key, and what has signed it, as PEM. Empty: connections are not encrypted."""
    round: RoundId | None = None
    """None: unknown, and with it the rank."""
    rank: int = 0
    """This member's own."""

    @classmethod
    def of(cls, assigned: Assigned) -> "RoundKeys":
        """Return the keys that an assignment carries."""
        return cls(assigned.secret, assigned.certificate, assigned.round, assigned.rank)

    def connect(self, host: str, port: int, rank: int | None = None) -> socket.socket:
        """Return a connection to a member; `rank`: whom to expect, None: any. Raises OSError as `as_client` does."""
        sock = socket.create_connection((host, port), timeout=CALL_SECONDS)
        try:
            return self.as_client(sock, rank)
        except BaseException:
            sock.close()
            raise

    def as_client(self, sock: socket.socket, rank: int | None = None) -> socket.socket:
        """Return the connection to use after `connect`; `rank`: whom to expect, None: any member.

        Raises OSError: the peer has not the keys of this round, or is another member.
        """
        if not self.certificate:
            return sock
        with _making:
            context = _for_client(self.certificate)
        name = SERVER_NAME if rank is None else member_name(rank)
        return context.wrap_socket(sock, server_hostname=name)

    def server_context(self) -> ssl.SSLContext | None:
        """Return what encrypts the connections of a server; None: nothing does. Raises OSError and ValueError."""
        if not self.certificate:
            return None
        with _making:
            return _for_server(self.certificate)


def member_of(sock: socket.socket) -> int | None:
    """Return the rank of the member at the other end, as its certificate proves it; None: it has shown none."""
    found = sock.getpeercert() if isinstance(sock, ssl.SSLSocket) else None
    names = cast("tuple[tuple[str, str], ...]", (found or {}).get("subjectAltName", ()))
    return next((rank for _, name in names if (rank := rank_of(name)) is not None), None)


def _authority(certificate: str) -> str:
    """Return what has signed the certificates of all members: the last one of the text."""
    return _BEGIN + certificate.rpartition(_BEGIN)[2]


@lru_cache(maxsize=1)
def _for_client(certificate: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_authority(certificate))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # it is its own authority
    with _in_memory(certificate) as path:
        context.load_cert_chain(path)
    return context


@lru_cache(maxsize=1)
def _for_server(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # a peer resumes no session; TLS 1.2 would let it
    context.load_verify_locations(cadata=_authority(certificate))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_mode = ssl.CERT_REQUIRED
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
