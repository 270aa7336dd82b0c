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
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from pytorchjob_agent.saves.manifest import MOST_BYTES, HeldFile

CALL_SECONDS = 10.0
"""A peer that sends nothing for this long is given up."""
_LINE_LIMIT = 2 * MOST_BYTES + 65_536
_CHUNK = 1 << 20
_NONCE_BYTES = 16


class PeerRefusedError(Exception):
    """A peer refuses, or sends what it must not; the text has the reason."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast files are sent."""

    bytes_per_second: float = 200e6

    def wait(self, sent: int, since: float) -> None:
        """Sleep until this many bytes are allowed since the start, in monotonic seconds."""
        ahead = sent / self.bytes_per_second - (time.monotonic() - since)
        if ahead > 0:
            time.sleep(ahead)


class Connection:
    """One authenticated conversation of two agents. Raises OSError and PeerRefusedError."""

    def __init__(self, sock: socket.socket, secret: str) -> None:
        """Take over a connected socket."""
        sock.settimeout(CALL_SECONDS)
        self._sock, self._secret, self._nonces = sock, secret, ""
        self._stream: BinaryIO = sock.makefile("rb")
        self.goes_on: Callable[[], bool] = lambda: True
        """Asked between two pieces of a file that is received; False: the round has ended."""

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """As the client: send the request with the proof, and return the answer."""
        theirs, own = self._read().get("nonce", ""), os.urandom(_NONCE_BYTES).hex()
        self._nonces, text = f"{theirs}{own}", json.dumps(request)
        self._write({"nonce": own, "request": text, "mac": self._mac("request", text)})
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """As the client: return one answer of the server."""
        return self._verified("answer")

    def greet(self) -> dict[str, Any]:
        """As the server: return the request of a client that knows the secret."""
        own = os.urandom(_NONCE_BYTES).hex()
        self._write({"nonce": own})
        return self._verified("request", own)

    def reply(self, values: dict[str, Any]) -> None:
        """As the server: answer."""
        text = json.dumps(values)
        self._write({"answer": text, "mac": self._mac("answer", text)})

    def send_file(self, path: Path, size: int, pace: Pace) -> None:
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
        self._sock.sendall(json.dumps(values).encode() + b"\n")

    def _read(self) -> dict[str, Any]:
        line = self._stream.readline(_LINE_LIMIT)
        if not line.endswith(b"\n"):
            raise PeerRefusedError("the peer sent no whole line within the limit")
        return _object(line)

    def _verified(self, kind: str, nonce: str = "") -> dict[str, Any]:
        values = self._read()
        text, mac = values.get(kind), values.get("mac")
        if nonce:
            self._nonces = f"{nonce}{values.get('nonce', '')}"
        known = isinstance(text, str) and isinstance(mac, str) and bool(self._secret)
        if not known or not hmac.compare_digest(str(mac).encode(), self._mac(kind, str(text)).encode()):
            raise PeerRefusedError("the peer does not know the secret of this round")
        found = _object(str(text))
        if found.get("error"):
            raise PeerRefusedError(str(found["error"])[:256])
        return found

    def _mac(self, kind: str, text: str) -> str:
        return hmac.new(self._secret.encode(), f"{kind} {self._nonces} {text}".encode(), sha256).hexdigest()


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
