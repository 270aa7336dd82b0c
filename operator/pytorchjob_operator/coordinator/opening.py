"""The first part of a connection: an accepted socket until its peer has sent something and asyncio reads it."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Opening:
    """A watched descriptor, and for a moment a task."""

    sock: socket.socket | None
    """None once it is asyncio's, or closed."""
    connect: Callable[[], asyncio.BufferedProtocol]
    """Returns the protocol for asyncio."""
    started: Callable[[], None]
    """Called at the first byte."""
    lost: Callable[[], None]
    """Called if the socket is closed before it is asyncio's."""
    taken: Callable[[], bool]
    """Returns whether it is asyncio's."""
    task: "asyncio.Task[Any] | None" = None

    def watch(self) -> None:
        """Wait for the first byte."""
        assert self.sock is not None
        asyncio.get_running_loop().add_reader(self.sock, self._open)

    def send(self, data: bytes) -> None:
        """Send what fits into the kernel's buffer, if the socket is not asyncio's."""
        if self.sock is not None:
            with suppress(OSError):
                self.sock.send(data)

    def close(self) -> None:
        """Close a socket that is not asyncio's."""
        if self.task is not None:
            self.task.cancel()
            return
        sock, self.sock = self.sock, None
        if sock is not None:
            asyncio.get_running_loop().remove_reader(sock)
            sock.close()
            self.lost()

    def _open(self) -> None:
        loop, sock = asyncio.get_running_loop(), self.sock
        assert sock is not None
        loop.remove_reader(sock)
        self.started()
        self.task = asyncio.create_task(loop.connect_accepted_socket(self.connect, sock))
        self.task.add_done_callback(self._opened)

    def _opened(self, task: "asyncio.Task[Any]") -> None:
        self.task = None
        if self.taken():  # asyncio closes it, also if the task was cancelled
            self.sock = None
        else:
            self.close()
        if not task.cancelled():
            task.exception()  # an OSError: the peer has left
