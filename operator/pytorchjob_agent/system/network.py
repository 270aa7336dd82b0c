"""Waits until the address where the replicas meet resolves and answers; a pod may start long before its peers."""

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_RESOLVER = "RES_OPTIONS"  # glibc's
_HASTY = "timeout:1 attempts:2"


class UnreachableError(Exception):
    """The meeting place was not there in time; names the address and what failed."""


def hurry_names() -> None:
    """Make this process and its children wait 2 s at most for a name server that does not answer, not 10.

    torch looks the name of every peer's address up before it uses a connection, for a warning; and a name server may
    have been on the node that was lost. It has to be called before the first look-up; a user's own value wins.
    """
    os.environ.setdefault(_RESOLVER, _HASTY)


def resolve(host: str, port: int) -> None:
    """Look the name up once."""
    socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def connect(host: str, port: int) -> None:
    """Open and close one connection."""
    socket.create_connection((host, port), timeout=5).close()


def wait_until(attempt: Callable[[str, int], None], host: str, port: int, timeout: float) -> None:
    """Repeat the attempt with growing pauses until it works or the time is over."""
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    level = logging.WARNING  # once: a person who looks at the log sees what it waits for
    while True:
        try:
            return attempt(host, port)
        except OSError as error:
            _log.log(level, "waiting for %s:%s: %s", host, port, error)
            level = logging.DEBUG
            if time.monotonic() + pause > deadline:
                raise UnreachableError(f"{host}:{port} was not reached within {timeout:g} s: {error}") from error
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def own_address(host: str, port: int) -> str | None:
    """Return the address of this machine that reaches `host`: an IP needs no DNS when it becomes MASTER_ADDR."""
    for family, kind, proto, _, address in socket.getaddrinfo(host, port or 1, type=socket.SOCK_DGRAM):
        with contextlib.suppress(OSError), socket.socket(family, kind, proto) as probe:
            probe.connect(address)  # a datagram socket sends nothing here
            return str(probe.getsockname()[0])
    return None
