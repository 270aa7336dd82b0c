"""Attackers without credentials: thousands of sockets that stay silent, send one byte a second, or stop halfway in TLS.

python -m tests.attacks.flooding PORT SOCKETS ADDRESSES PER_SECOND [KIND]

It connects from so many loopback addresses, opens what is closed again, and prints a line once all sockets were opened.
It ends with its input.
"""

import contextlib
import os
import resource
import selectors
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from itertools import count

SILENT, SLOW, HALF_TLS = "silent", "slow", "half TLS"
_KINDS = (SILENT, SLOW, HALF_TLS)
_STEP = 0.02


def client_hello() -> bytes:
    """The first record of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="anything")
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


class Flood:
    """Keeps a number of sockets open: all of one kind, or of all kinds in equal parts."""

    def __init__(self, port: int, sockets: int, addresses: int, per_second: int, kind: str = "") -> None:
        self._kinds = (kind,) if kind else _KINDS
        self._port, self._most, self._addresses, self._per_second = port, sockets, addresses, per_second
        self._hello = client_hello()
        self._selector = selectors.DefaultSelector()
        self._slow: dict[socket.socket, int] = {}
        self._numbers = count()
        self.open = self.opened = 0

    def step(self, seconds: float) -> None:
        """Open what is missing, as fast as allowed; note what was closed; let the slow ones send a byte."""
        for _ in range(min(self._most - self.open, max(int(self._per_second * seconds), 1))):
            self._connect()
        for key, events in self._selector.select(0):
            if events & selectors.EVENT_WRITE:
                self._begin(key.fileobj, key.data)  # type: ignore[arg-type]
            else:
                self._read(key.fileobj)  # type: ignore[arg-type]
        for sock in list(self._slow)[: max(int(len(self._slow) * seconds), 1)]:
            self._drip(sock)

    def _connect(self) -> None:
        number = next(self._numbers)
        sock = socket.socket()
        sock.setblocking(False)
        sock.bind((f"127.0.0.{2 + number % self._addresses}", 0))
        with contextlib.suppress(BlockingIOError):
            sock.connect(("127.0.0.1", self._port))
        self.open += 1
        self.opened += 1
        kind = self._kinds[number % len(self._kinds)]
        self._selector.register(sock, selectors.EVENT_WRITE, kind)

    def _begin(self, sock: socket.socket, kind: str) -> None:
        """The connection is open, or was refused."""
        self._selector.modify(sock, selectors.EVENT_READ)
        if kind == SLOW:
            self._slow[sock] = 0
        elif kind == HALF_TLS:
            self._send(sock, self._hello)

    def _read(self, sock: socket.socket) -> None:
        try:
            if sock.recv(65536):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._forget(sock)

    def _drip(self, sock: socket.socket) -> None:
        sent = self._slow.pop(sock)
        if self._send(sock, self._hello[sent : sent + 1]):
            self._slow[sock] = sent + 1  # now the last one in the order

    def _send(self, sock: socket.socket, data: bytes) -> bool:
        try:
            sock.send(data)
        except BlockingIOError:
            pass
        except OSError:
            self._forget(sock)
            return False
        return True

    def _forget(self, sock: socket.socket) -> None:
        self._slow.pop(sock, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(sock)
            self.open -= 1
        sock.close()


def _run(flood: Flood, sockets: int) -> Iterator[None]:
    before = time.monotonic()
    while True:
        time.sleep(_STEP)
        now = time.monotonic()
        flood.step(now - before)
        before = now
        if flood.opened >= sockets:
            yield


def main(port: int, sockets: int, addresses: int, per_second: int, kind: str = "") -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.set_blocking(sys.stdin.fileno(), False)
    flood = Flood(port, sockets, addresses, per_second, kind)
    for number, _ in enumerate(_run(flood, sockets)):
        if number == 0:
            print(f"{flood.opened} opened, {flood.open} open", flush=True)
        if sys.stdin.buffer.read(1) == b"":
            with contextlib.suppress(BrokenPipeError):  # nobody may want to know
                print(f"{flood.opened} opened, {flood.open} open", flush=True)
            return


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]), *sys.argv[5:])
