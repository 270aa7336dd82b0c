"""The port of a standalone run's store: bound before it is passed on, so that two runs never get the same port."""

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from pytorchjob_agent.contract.reading import ContractError

LOOPBACK = "127.0.0.1"  # all workers of a standalone run are on this machine, so its store serves no other address
_LISTENS = "0A"


def listen(port: int) -> socket.socket:
    """Return a socket that listens on the port, or on a free one for 0; the port is reserved until it is closed."""
    if not 0 <= port <= 65535:
        raise ContractError(f"--master-port: {port} is not a port: expected a number from 1 to 65535, or no flag")
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        why = f"is taken by {holder(port)}" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise ContractError(f"--master-port: {port} {why}: choose another port, or omit the flag") from None


def holder(port: int) -> str:
    """Return the process that has the port, as far as this user may see it."""
    inodes = {f"socket:[{inode}]" for inode in _inodes(port)}
    for entry in Path("/proc").glob("[0-9]*"):
        if inodes & set(_links(entry / "fd")):
            return f"process {entry.name} ({_name(entry)})"
    return "another process"


def _inodes(port: int) -> list[str]:
    """Return the inodes of the sockets that listen on this port, or else of those that are connected from it."""
    rows = [row for table in ("tcp", "tcp6") for row in _rows(Path("/proc/net") / table) if _port(row[1]) == port]
    return [row[9] for row in rows if row[3] == _LISTENS] or [row[9] for row in rows]


def _rows(table: Path) -> list[list[str]]:
    try:
        return [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return []


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _links(folder: Path) -> Iterator[str]:
    try:
        for link in folder.iterdir():
            yield str(link.readlink())
    except OSError:  # the process ended meanwhile, or belongs to another user
        return


def _name(entry: Path) -> str:
    try:
        return (entry / "comm").read_text().strip()
    except OSError:
        return "ended"
