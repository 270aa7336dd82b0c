"""What agents send each other to copy saves: a proof of the round's secret, lines of JSON, and the bytes of files.

The server sends a random text. The client's first line has its own random text, the request, and an HMAC over all of
them with the secret of the round. Each answer has an HMAC too. Files have none: the manifest has their checksums.
"""

import hmac
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from pytorchjob_agent.exchange.file_list import MOST_BYTES, HeldFile, ManifestError

CALL_SECONDS = 10.0
"""A peer that sends nothing for this long is given up."""
LINE_LIMIT = 2 * MOST_BYTES + 65_536
PATIENCE = b" "
"""What a server that is busy sends before its answer, so that the client goes on waiting: JSON may begin with it."""
_CHUNK = 1 << 20
_NONCE_BYTES = 16


class PeerRefusedError(Exception):
    """A peer refuses, or sends what it must not; the text has the reason."""


@contextmanager
def refusing_nonsense() -> Iterator[None]:
    """Refuse a peer that sends values which no call takes: a caller expects no error of a single call."""
    try:
        yield
    except (OSError, ManifestError):
        raise
    except (ValueError, ArithmeticError) as error:
        raise PeerRefusedError(f"the peer sent what no member sends: {error!r:.120}") from error


@dataclass(frozen=True, slots=True)
class TransferPace:
    """How fast files are sent."""

    bytes_per_second: float = 200e6

    def wait(self, sent: int, since: float) -> None:
        """Sleep until this many bytes are allowed since the start, in monotonic seconds."""
        ahead = sent / self.bytes_per_second - (time.monotonic() - since)
        if ahead > 0:
            time.sleep(ahead)


class Challenge:
    """What a server demands of a new client: a proof for this connection that it knows the secret of the round."""

    def __init__(self, secret: str) -> None:
        """Draw a random text."""
        self._secret, self._nonce = secret, os.urandom(_NONCE_BYTES).hex()
        self.nonces = ""
        """The random texts of both sides, once the client has answered."""
        self.line = _line({"nonce": self._nonce})

    def request(self, line: bytes) -> dict[str, Any]:
        """Return the request in the client's first line. Raises PeerRefusedError if it proves nothing."""
        values = _object(line)
        self.nonces = f"{self._nonce}{values.get('nonce', '')}"
        return _verified(values, "request", self._secret, self.nonces)

    def refusal(self, error: Exception) -> bytes:
        """Return the answer to a client that has proved nothing; without the secret it is worth nothing."""
        return _line({"answer": json.dumps({"error": str(error)}), "mac": ""})


class PeerConnection:
    """One authenticated conversation of two agents. Raises OSError and PeerRefusedError."""

    def __init__(self, sock: socket.socket, secret: str, nonces: str = "") -> None:
        """Take over a connected socket; a server has the nonces of the `Challenge`."""
        sock.settimeout(CALL_SECONDS)
        self._sock, self._secret, self._nonces = sock, secret, nonces
        self._stream: BinaryIO = sock.makefile("rb")
        self.sender: int | None = None
        """As a server: the rank that the client has proved. None: none."""
        self.goes_on: Callable[[], bool] = lambda: True
        """Asked between two pieces of a file that is received; False: the round has ended."""

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """As the client: send the request with the proof, and return the answer."""
        theirs, own = self._read().get("nonce", ""), os.urandom(_NONCE_BYTES).hex()
        self._nonces, text = f"{theirs}{own}", json.dumps(request)
        self._write({"nonce": own, "request": text, "mac": _mac(self._secret, "request", self._nonces, text)})
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """As the client: return one answer of the server."""
        return _verified(self._read(), "answer", self._secret, self._nonces)

    def reply(self, values: dict[str, Any]) -> None:
        """As the server: answer."""
        text = json.dumps(values)
        self._write({"answer": text, "mac": _mac(self._secret, "answer", self._nonces, text)})

    def send_file(self, path: Path, size: int, pace: TransferPace) -> None:
        """Send a file's bytes, not faster than the pace."""
        started, sent = time.monotonic(), 0
        with path.open("rb") as file:
            while sent < size:
                data = file.read(min(_CHUNK, size - sent))
                if not data:
                    raise PeerRefusedError("the script has replaced the file meanwhile")
                self._sock.sendall(data)
                sent += len(data)
                pace.wait(sent, started)

    def receive_file(self, path: Path, file: HeldFile) -> None:
        """Write as many bytes as the manifest has for this file, and compare the checksum."""
        digest, left = sha256(), file.size
        with path.open("wb") as out:
            while left:
                data = self._stream.read(min(_CHUNK, left))
                if not data:
                    raise PeerRefusedError(f"{file.path}: the peer sent {left} bytes less than announced")
                if not self.goes_on():
                    raise PeerRefusedError("the round has ended")
                digest.update(data)
                out.write(data)
                left -= len(data)
        if digest.hexdigest() != file.sha256:
            raise PeerRefusedError(f"{file.path}: the checksum is not the announced one")
        os.utime(path, ns=(file.mtime_ns, file.mtime_ns))

    def write_places(self, places: list[int]) -> None:
        """Send which files are needed, by their places in the manifest."""
        self._write({"need": places})

    def read_places(self, most: int) -> list[int]:
        """Return which files the other side needs."""
        return places(self._read(), most)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._sock.close()

    def _write(self, values: dict[str, Any]) -> None:
        self._sock.sendall(_line(values))

    def _read(self) -> dict[str, Any]:
        line = self._stream.readline(LINE_LIMIT)
        if not line.endswith(b"\n"):
            raise PeerRefusedError("the peer sent no whole line within the limit")
        return _object(line)


def _verified(values: dict[str, Any], kind: str, secret: str, nonces: str) -> dict[str, Any]:
    """Return what a line says, if whoever wrote it knows the secret: without one, no peer is trusted."""
    text, mac = values.get(kind), values.get("mac")
    known = isinstance(text, str) and isinstance(mac, str) and bool(secret)
    if not known or not hmac.compare_digest(_bytes(mac), _mac(secret, kind, nonces, str(text)).encode()):
        raise PeerRefusedError("the peer does not know the secret of this round")
    found = _object(str(text))
    if found.get("error"):
        raise PeerRefusedError(str(found["error"])[:256])
    return found


def _mac(secret: str, kind: str, nonces: str, text: str) -> str:
    return hmac.new(secret.encode(), _bytes(f"{kind} {nonces} {text}"), sha256).hexdigest()


def _bytes(text: Any) -> bytes:
    """Return bytes of any text: JSON may have halves of characters."""
    return str(text).encode(errors="surrogatepass")


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values).encode() + b"\n"


def _object(text: str | bytes) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise PeerRefusedError("the peer sent no JSON object")
    return values


def places(values: dict[str, Any], most: int) -> list[int]:
    """Return the places of needed files. Raises PeerRefusedError."""
    found = values.get("need")
    if not isinstance(found, list) or not all(type(place) is int and 0 <= place < most for place in found):
        raise PeerRefusedError("the peer asks for files that the save does not have")
    return found


def copy_file(source: Path, target: Path, file: HeldFile) -> None:
    """Give a file that is held already a second name; or a copy, if its time of change differs. Raises OSError."""
    if source.stat().st_mtime_ns == file.mtime_ns:
        os.link(source, target)
        return
    shutil.copyfile(source, target)
    os.utime(target, ns=(file.mtime_ns, file.mtime_ns))
