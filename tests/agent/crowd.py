"""Connections that ask for nothing and never end: each comes back when it is closed, and sends a byte now and then."""

import resource
import socket
import ssl
import threading
import time
from contextlib import suppress

from tests.waiting import until

_PAUSE = 0.2


class Crowd:
    """So many connections to one port, from its creation until its end.

    They come from so many loopback addresses; the first one is that of an honest client here.
    """

    def __init__(self, port: int, size: int, *, tls: bool = False, idle: bool = False, addresses: int = 1) -> None:
        self._idle, self._addresses = idle, addresses
        self._address, self._size, self._tls = ("127.0.0.1", port), size, tls
        self._open: list[socket.socket | None] = [None] * size
        self.came = 0
        """How often one has connected."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)

    def __enter__(self) -> "Crowd":
        """Return when each has connected once."""
        wanted = max(self._limit[0], 4 * self._size + 1024)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, self._limit[1]), self._limit[1]))
        self._thread.start()
        until(lambda: self.came >= self._size, story="not all have connected")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for sock in self._open:
            if sock is not None:
                sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limit)

    def _run(self) -> None:
        while not self._over.is_set():
            for place, sock in enumerate(self._open):
                if self._over.is_set():
                    return
                self._open[place] = self._connect(place) if sock is None else self._trickle(sock)
            time.sleep(_PAUSE)

    def _connect(self, place: int) -> socket.socket | None:
        with suppress(OSError):
            source = (f"127.0.0.{1 + place % self._addresses}", 0)
            sock = socket.create_connection(self._address, 5, source)
            self.came += 1
            try:
                if self._tls:
                    context = ssl._create_unverified_context()
                    sock = context.wrap_socket(sock)
                sock.setblocking(False)
                return self._trickle(sock)
            except OSError:
                sock.close()
        return None

    def _trickle(self, sock: socket.socket) -> socket.socket | None:
        """Send a byte of what may become a message, unless they are idle; None once the connection is closed."""
        try:
            if not self._idle:
                sock.send(b"\x16" if not self._tls else b"{")
            with suppress(BlockingIOError, ssl.SSLWantReadError):
                while data := sock.recv(4096):
                    pass
                if not data:
                    raise ConnectionResetError
        except OSError:
            sock.close()
            return None
        return sock
