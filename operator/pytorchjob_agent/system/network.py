"""Waits until the rendezvous endpoint resolves and answers: a pod may start long before its peers."""

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any

_log = logging.getLogger(__name__)
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_RESOLVER = "RES_OPTIONS"  # glibc's
_SHORT_TIMEOUT = "timeout:1 attempts:2"
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Where the default route leads. Nothing is sent there."""


class UnreachableError(Exception):
    """The endpoint did not answer in time; names the address and the last error."""


def shorten_name_lookups() -> None:
    """Make this process and its children wait at most 2 s instead of 10 s for a name server that does not answer.

    torch looks up the name of every peer's address before it uses a connection, only for a warning, and a name server
    may have been on the lost node. Call it before the first lookup; the user's own value takes precedence.
    """
    os.environ.setdefault(_RESOLVER, _SHORT_TIMEOUT)


def resolve(host: str, port: int) -> None:
    """Look up the name once; raises OSError."""
    socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def connect(host: str, port: int) -> None:
    """Open and close one connection; raises OSError."""
    socket.create_connection((host, port), timeout=5).close()


def wait_until(attempt: Callable[[str, int], None], host: str, port: int, timeout: float) -> None:
    """Repeat the attempt with growing pauses until it succeeds; raises UnreachableError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    level = logging.WARNING  # once, so that the log shows what the agent waits for
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


def own_address(host: str, port: int, lookup: Callable[..., Any] = socket.getaddrinfo) -> str | None:
    """Return this machine's address on the route to `host`: an IP needs no DNS when it becomes MASTER_ADDR.

    While the name does not resolve, the default route decides: a name server may have been on a lost node.
    """
    try:
        found = lookup(host, port or 1, type=socket.SOCK_DGRAM)
    except socket.gaierror:
        found = [(family, socket.SOCK_DGRAM, 0, "", (address, 1)) for family, address in _ELSEWHERE]
    for family, kind, proto, _, address in found:
        with contextlib.suppress(OSError), socket.socket(family, kind, proto) as probe:
            probe.connect(address)  # a datagram socket sends nothing here
            return str(probe.getsockname()[0])
    return None
