"""An API server and the credentials for it. No connection is opened here.

The client asks the source of the bearer token (none, a constant, or a file that rotates) for every request, and the
source caches. `fresh` means that the server has just refused the last token.
"""

import asyncio
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pytorchjob_operator.errors import OperatorError

_FILE_MAX_AGE = 30.0
_MAX_TOKEN = 256 * 1024


class TokenSource(Protocol):
    """Returns the token to send now; with None the request carries no token."""

    async def __call__(self, *, fresh: bool = False) -> str | None:
        """Return the token; with `fresh` a new one wherever the source can give one. Raises OperatorError."""


@dataclass(slots=True)
class FixedToken:
    """A token that never changes, or None for client certificates."""

    token: str | None = field(default=None, repr=False)

    async def __call__(self, *, fresh: bool = False) -> str | None:
        """Return the same token each time."""
        return self.token


@dataclass(slots=True)
class FileToken:
    """A token in a file that the kubelet replaces before it expires."""

    path: Path
    _token: str | None = field(default=None, repr=False)
    _until: float = field(default=0.0, repr=False)

    async def __call__(self, *, fresh: bool = False) -> str | None:
        """Return the content of the file, at most half a minute old."""
        now = asyncio.get_running_loop().time()
        if fresh or self._token is None or now >= self._until:
            self._token = self._read()
            self._until = now + _FILE_MAX_AGE
        return self._token

    def _read(self) -> str:
        try:
            with self.path.open(encoding="utf-8") as file:
                return file.read(_MAX_TOKEN).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise OperatorError(f"token file {self.path}: cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """An API server: its address, its CA, and the client's credentials; PEM data as bytes, never paths."""

    server: str
    namespace: str = "default"
    token: TokenSource = field(default_factory=FixedToken)
    ca: bytes | None = None
    insecure: bool = False
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context for this connection; raises OperatorError if the CA or client certificate is unusable."""
        try:
            return self._ssl_context()
        except (ssl.SSLError, ValueError) as error:
            raise OperatorError(f"{self.server}: the CA or the client certificate is unusable: {error}") from error

    def _ssl_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.ca.decode("ascii") if self.ca else None)
        # Python 3.13 requires CA extensions that the CAs of many clusters lack; all other clients accept those CAs.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate and self.key:
            with private_file(self.certificate) as certificate, private_file(self.key) as key:
                context.load_cert_chain(certificate, key)
        return context


@contextmanager
def private_file(data: bytes) -> Iterator[str]:
    """Write `data` to a file that only this user can read, and remove it on exit: ssl loads keys from files only."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        yield file.name
