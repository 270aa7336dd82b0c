"""Free TCP ports for tests that run side by side: no port is given out twice, in this process or in another."""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

# Below what Linux takes for outgoing connections (32768 and up), and above what services usually listen on.
_FIRST, _LAST = 20_000, 32_000
_HELD: list[int] = []
"""Descriptors of lock files: a port is this process's until it ends."""


def free_port() -> int:
    """Return a port that nobody listens on, and that no other test process on this machine gets."""
    folder = Path(tempfile.gettempdir()) / f"pytorchjob-test-ports-{os.geteuid()}"
    folder.mkdir(exist_ok=True)
    start = os.getpid() * 37 % (_LAST - _FIRST)
    for offset in range(_LAST - _FIRST):
        port = _FIRST + (start + offset) % (_LAST - _FIRST)
        if _claim(folder / str(port)) and _is_free(port):
            return port
    raise OSError(f"no port between {_FIRST} and {_LAST} is free")


def _claim(path: Path) -> bool:
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    _HELD.append(file)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
