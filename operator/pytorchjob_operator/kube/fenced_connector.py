"""Connections for writes: none leaves once the write fence has fallen, and those that are in flight are cut.

The check is made when a request has its connection: waiting for one may take longer than the term lasts. The request
then carries the rest of the term as its deadline, so that the API server does not work on it for longer.
"""

import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import aiohttp

from pytorchjob_operator.errors import Unavailable

if TYPE_CHECKING:
    import asyncio

    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

_DISCARD = struct.pack("ii", 1, 0)
"""SO_LINGER: a close drops what the kernel has not sent yet, instead of sending it later."""


class FencedConnector(aiohttp.TCPConnector):
    """Gives out connections only while `remaining()` is more than 0 seconds; requests that only read always get one."""

    def __init__(self, remaining: Callable[[], float], **options: Any) -> None:
        super().__init__(**options)
        self._remaining = remaining
        self._used: WeakSet[asyncio.BaseTransport] = WeakSet()

    async def connect(
        self,
        req: "ClientRequest",
        traces: "list[Trace]",
        timeout: "ClientTimeout",  # noqa: ASYNC109 -- aiohttp's signature
    ) -> "Connection":
        """Return a connection on which the request leaves at once, with its deadline; raises Unavailable."""
        connection = await super().connect(req, traces, timeout)
        if req.method == "GET":
            return connection
        remaining = self._remaining()
        if remaining <= 0.0 or connection.transport is None:
            connection.release()
            raise Unavailable(0, "NotLeader", "this process is not the leader: nothing was written")
        req.url = req.url.update_query(timeout=f"{max(1, int(remaining * 1000))}ms")
        self._used.add(connection.transport)
        return connection

    def cut(self) -> None:
        """Close all connections that carried writes, without sending what is still buffered."""
        for transport in list(self._used):
            open_socket = transport.get_extra_info("socket")
            if open_socket is not None and not transport.is_closing():
                open_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
            transport.abort()  # type: ignore[attr-defined]  # every transport of a stream has it
        self._used.clear()
