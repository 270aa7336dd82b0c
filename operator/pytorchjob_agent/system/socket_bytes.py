"""Reads how many bytes the TCP connections of some processes have moved, by the kernel's socket diagnostics (netlink).

The counters of /proc/net/dev are those of the whole network namespace: with hostNetwork or in a local run, that of the
whole machine. These belong to single sockets, and need no privilege.
"""

import os
import socket
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY, _NLMSG_ERROR, _NLMSG_DONE = 20, 2, 3
_REQUEST_DUMP = 0x301
_INFO = 2  # the attribute with struct tcp_info
_HEADER = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBBI48x")
_ENDS = struct.Struct("!4xHH16s16s")  # ports and addresses
_INODE = struct.Struct("=I")
_INODE_AT, _MESSAGE_SIZE = 68, 72
_ATTRIBUTE = struct.Struct("=HH")
_MOVED = struct.Struct("=QQ")  # bytes_acked, bytes_received
_MOVED_AT = 120
_CONNECTED = 0xFFF & ~(1 << 10 | 1 << 6 | 1 << 3)  # all states but LISTEN, TIME_WAIT and SYN_RECV
_MAPPED = b"\0" * 10 + b"\xff\xff"
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_SECONDS = 1.0
_BUFFER = 64 * 1024


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """One TCP connection: its ends as (address, port), and the bytes received and acknowledged so far."""

    local: tuple[bytes, int]
    peer: tuple[bytes, int]
    moved: int


def connections(inodes: Collection[int]) -> dict[int, TcpConnection] | None:
    """Return those of these sockets that are TCP connections, by inode; None: the kernel does not show them."""
    if not inodes:
        return {}
    if not hasattr(socket, "AF_NETLINK"):  # not Linux
        return None
    try:
        return {inode: found for family in _FAMILIES for inode, found in _dump(family) if inode in inodes}
    except OSError:
        return None


def inodes_of(pid: int) -> frozenset[int]:
    """Return the sockets of a process; none if its files cannot be listed."""
    return frozenset(_inodes(pid))


def _inodes(pid: int) -> Iterator[int]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield int(target[8:-1])


def _dump(family: int) -> Iterator[tuple[int, TcpConnection]]:
    """Ask the kernel for all TCP sockets of a family."""
    query = _QUERY.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _CONNECTED)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(_SECONDS)
        link.send(_HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + query)
        while True:
            for kind, body in _messages(link.recv(_BUFFER)):
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    raise OSError("the kernel shows no sockets")
                if (found := _socket(body)) is not None:
                    yield found


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _socket(body: bytes) -> tuple[int, TcpConnection] | None:
    """Return a socket's inode and what it moved; None without its statistics."""
    at = _MESSAGE_SIZE
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if kind == _INFO and length >= _ATTRIBUTE.size + _MOVED_AT + _MOVED.size:
            (inode,) = _INODE.unpack_from(body, _INODE_AT)
            port, peer_port, address, peer = _ENDS.unpack_from(body)
            moved = sum(_MOVED.unpack_from(body, at + _ATTRIBUTE.size + _MOVED_AT))
            return inode, TcpConnection((_plain(address), port), (_plain(peer), peer_port), moved)
        at += max((length + 3) & ~3, _ATTRIBUTE.size)
    return None


def _plain(address: bytes) -> bytes:
    """Return one form for an IPv4 address, which an IPv6 socket shows behind a prefix."""
    return address[12:] if address.startswith(_MAPPED) else address[:4] if not any(address[4:]) else address
