"""Ends the sleep of a thread that waits in `select`: a pipe to itself."""

import os
from contextlib import suppress


class Alarm:
    """Something that can be waited for as for a file, until another thread, or a signal handler, rings."""

    def __init__(self) -> None:
        """Start silent."""
        self._receive, self._send = os.pipe()
        os.set_blocking(self._receive, False)
        os.set_blocking(self._send, False)

    def fileno(self) -> int:
        """Return the descriptor that can be read once somebody has rung; selectors ask for it."""
        return self._receive

    def ring(self) -> None:
        """End the sleep, or the next one."""
        with suppress(OSError):  # full: it is awake already; closed: it has ended
            os.write(self._send, b".")

    def hush(self) -> None:
        """Be silent again; whoever was woken calls it before looking for the reason, so that none is missed."""
        with suppress(BlockingIOError):
            os.read(self._receive, 4096)

    def close(self) -> None:
        """Give the descriptors back; who rings after that is not heard."""
        fds = self._receive, self._send
        self._receive = self._send = -1
        for fd in fds:
            os.close(fd)
