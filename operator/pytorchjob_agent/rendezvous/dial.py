"""Connects to the coordinator: by the address that worked last, or by its name if that address fails.

A Service's address outlives every operator behind it, and the name servers may be what has just failed.
"""

import socket
from collections.abc import Callable
from contextlib import suppress

Address = tuple[str, int]
_LABELS = 4
"""A name of this many parts is complete: the search domains of the pod would only cost time."""

_ENOUGH = 20
"""After this many refusals, resolve the name again."""


def resolve(host: str, port: int) -> Address:
    """Return the first address of a name; raises OSError."""
    if host.count(".") >= _LABELS - 1 and not host.endswith(".") and not host.rpartition(".")[2].isdigit():
        with suppress(OSError):
            return _first(f"{host}.", port)
    return _first(host, port)


def _first(host: str, port: int) -> Address:
    address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4]
    return str(address[0]), int(address[1])


class Dialer:
    """Connects again and again to one host and port."""

    def __init__(self, host: str, port: int, find: Callable[[str, int], Address] = resolve) -> None:
        """Start without an address."""
        self._host, self._port, self._find = host, port, find
        self._known: Address | None = None
        self._refusals = 0

    def connect(self, seconds: float) -> socket.socket:
        """Return an open connection; raises OSError. A refusal keeps the address: a standby refuses connections."""
        address = self._known or self._find(self._host, self._port)
        try:
            connection = socket.create_connection(address, timeout=seconds)
        except ConnectionRefusedError:
            self._refusals += 1
            if self._refusals % _ENOUGH == 0:
                self._known = None
            raise
        except OSError:
            self._known = None
            raise
        self._known, self._refusals = address, 0
        return connection
