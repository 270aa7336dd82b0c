"""A cluster's API server as far as an agent asks it: an authority, a certificate for its address, one answer."""

import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pytorchjob_agent.rendezvous.api_server import HOST, PORT, ApiServer
from tests.waiting import until

Answer = Callable[[socket.socket, bytes], None]
"""Gets a connection after its handshake, and the request."""


class Authority:
    """What a cluster's certificates are signed with."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        self.pem = self._sign(self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=None))

    def _sign(self, name: x509.Name, key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType) -> bytes:
        now = datetime.now(UTC)  # noqa: TID251 - it is verified now
        builder = x509.CertificateBuilder(self._name, name, key, x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
        signed = builder.add_extension(extension, critical=False).sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    def context(self, folder: Path, host: str) -> ssl.SSLContext:
        """What serves at this host."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        pem = self._sign(x509.Name([]), key.public_key(), x509.SubjectAlternativeName([name]))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / "server.pem").write_bytes(pem + private)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        return context


def says(status: str) -> Answer:
    """The answer of a server with this status."""
    return lambda sock, _: sock.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok".encode())


@contextmanager
def endpoint(answer: Answer, context: ssl.SSLContext | None, at: str = "127.0.0.1") -> Iterator[int]:
    """Answer each connection at this address; without a context before any TLS. Yields the port."""
    over = threading.Event()

    def serve(sock: socket.socket) -> None:
        with suppress(OSError), sock:
            sock.settimeout(30)
            if context is None:
                answer(sock, sock.recv(4096))
            else:
                with context.wrap_socket(sock, server_side=True) as secure:
                    answer(secure, secure.recv(4096))

    def accept() -> None:
        while not over.is_set():
            with suppress(OSError):
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    family = socket.AF_INET6 if ":" in at else socket.AF_INET
    with socket.create_server((at, 0), family=family) as listener:
        listener.settimeout(0.1)
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        over.set()
        thread.join()


class Asking:
    """An agent's view of the API server at an address."""

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self.account = folder / "account"
        self.account.mkdir()
        self.authorities = folder / "ca.crt"
        self.server = ApiServer([self.authorities], {HOST: host, PORT: str(port)}, self.account)

    def at(self, now: float) -> float:
        """When it was last ready, once this question is over."""
        self.server.check(now)
        until(lambda: self.server._asking is None or self.server._asking.is_done)
        return self.server.answered_at
