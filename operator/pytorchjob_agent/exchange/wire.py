"""What agents send each other to copy saves: a proof of the round's secret, lines of JSON, and the bytes of files.

The server sends a random text. The client's first line has its own random text, the request, and an HMAC over all of
them with the secret of the round. Each answer has an HMAC too. Files have none: the manifest has their checksums.
"""

import hmac
import json
import math
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pytorchjob_agent.exchange.checksum import Checksum, count_of
from pytorchjob_agent.exchange.file_list import MOST_BYTES, HeldFile, ManifestError

CALL_SECONDS = 10.0
"""A peer that sends nothing for this long is given up."""
LINE_LIMIT = 2 * MOST_BYTES + 65_536
PATIENCE = b" "
"""What a server that is busy sends before its answer, so that the client goes on waiting: JSON may begin with it."""
_CHUNK, _LINE_CHUNK = 1 << 20, 1 << 16
_NONCE_BYTES = 16
_CREDIT_SECONDS = 0.1
"""How much lost time a sender makes up for."""


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


class TransferPace:
    """How fast the threads that share it send files together."""

    def __init__(self, bytes_per_second: float) -> None:
        """Begin; math.inf: as fast as it goes."""
        self.bytes_per_second = bytes_per_second
        self._lock, self._free_at = threading.Lock(), 0.0

    def wait(self, count: int) -> None:
        """Sleep for as long as these bytes may take; what was slower a moment ago is made up for."""
        if self.bytes_per_second == math.inf:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - _CREDIT_SECONDS) + count / self.bytes_per_second
            ahead = self._free_at - now
        if ahead > 0:
            time.sleep(ahead)


UNLIMITED = TransferPace(math.inf)


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
        self._rest = bytearray()
        """What was received behind the last line."""
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
        with path.open("rb") as file:
            while size:
                data = file.read(min(_CHUNK, size))
                if not data:
                    raise PeerRefusedError("the script has replaced the file meanwhile")
                self._sock.sendall(data)
                size -= len(data)
                pace.wait(len(data))

    def send_piece(self, path: Path, at: tuple[int, int], pace: TransferPace) -> None:
        """Send the bytes of a file from an offset, as many as these; not faster than the pace."""
        offset, size = at
        with path.open("rb", buffering=0) as file:
            data = memoryview(os.pread(file.fileno(), size, offset))
        if len(data) != size:
            raise PeerRefusedError("the script has replaced the file meanwhile")
        while data:
            self._sock.sendall(data[:_CHUNK])  # a slow network has its time for each of them
            pace.wait(len(data[:_CHUNK]))
            data = data[_CHUNK:]

    def receive_piece(self, path: str, into: memoryview, pace: "TransferPace") -> None:
        """Receive as many bytes as fit, not faster than the pace; `path` names the file in errors."""
        if not self.goes_on():
            raise PeerRefusedError("the round has ended")
        got = min(len(self._rest), len(into))
        into[:got] = self._rest[:got]
        del self._rest[:got]
        while got < len(into):
            count = self._sock.recv_into(into[got:])
            if not count:
                raise PeerRefusedError(f"{path}: the peer sent {len(into) - got} bytes less than announced")
            got += count
            pace.wait(count)

    def receive_file(self, path: Path, file: HeldFile) -> None:
        """Write as many bytes as the manifest has for this file, and compare the checksum."""
        checksum, left, buffer = Checksum(), file.size, memoryview(bytearray(_CHUNK))
        with path.open("wb") as out:
            while left:
                data = buffer[: min(_CHUNK, left)]
                self.receive_piece(file.path, data, UNLIMITED)
                checksum.update(data)
                out.write(data)
                left -= len(data)
        if checksum.text() != file.checksum:
            raise PeerRefusedError(f"{file.path}: the checksum is not the announced one")
        os.utime(path, ns=(file.mtime_ns, file.mtime_ns))

    def write_places(self, places: list[int]) -> None:
        """Send which files are needed, by their places in the manifest."""
        self._write({"need": places})

    def read_places(self, most: int) -> list[int]:
        """Return which files the other side needs."""
        return places(self._read(), most)

    def write_pieces(self, pieces: Sequence[tuple[int, int]]) -> None:
        """Send which pieces come next, or are needed next: each by its file's place and its number. None: the end."""
        self._write({"pieces": pieces})

    def read_pieces(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Return the pieces that come next, or that the other side needs next, of files with these sizes."""
        found = self._read().get("pieces")
        if not isinstance(found, list) or not all(_is_piece(piece, sizes) for piece in found):
            raise PeerRefusedError("the peer names pieces that the files do not have")
        return [(place, number) for place, number in found]

    def end(self) -> None:
        """Let a thread that waits for the other side wait no longer."""
        with suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # that of TLS would switch off the encryption first

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def _write(self, values: dict[str, Any]) -> None:
        self._sock.sendall(_line(values))

    def _read(self) -> dict[str, Any]:
        searched = 0
        while (end := self._rest.find(b"\n", searched)) < 0:
            searched = len(self._rest)
            data = self._sock.recv(_LINE_CHUNK) if searched < LINE_LIMIT else b""
            if not data and not searched:
                raise ConnectionResetError("the peer has left")
            if not data:
                raise PeerRefusedError("the peer sent no whole line within the limit")
            self._rest += data
        line = bytes(self._rest[: end + 1])
        del self._rest[: end + 1]
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
    return hmac.digest(secret.encode(), _bytes(f"{kind} {nonces} {text}"), "sha256").hex()


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


def _is_piece(piece: Any, sizes: Sequence[int]) -> bool:
    """Return whether this names a piece of one of these files."""
    whole = isinstance(piece, list) and len(piece) == 2 and all(type(part) is int and part >= 0 for part in piece)
    return whole and piece[0] < len(sizes) and piece[1] < count_of(sizes[piece[0]])


def copy_file(source: Path, target: Path, file: HeldFile) -> None:
    """Give a file that is held already a second name; or a copy, if its time of change differs. Raises OSError."""
    if source.stat().st_mtime_ns == file.mtime_ns:
        os.link(source, target)
        return
    shutil.copyfile(source, target)
    os.utime(target, ns=(file.mtime_ns, file.mtime_ns))
