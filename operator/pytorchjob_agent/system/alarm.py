"""Wakes up a thread that sleeps in `select`, by a pipe to itself."""

import os
from contextlib import suppress


class Alarm:
    """A file that `select` can wait for until another thread, or a signal handler, rings."""

    def __init__(self) -> None:
        """Start silent."""
        self._receive, self._send = os.pipe()
        os.set_blocking(self._receive, False)
        os.set_blocking(self._send, False)

    def fileno(self) -> int:
        """Return the descriptor that is readable after a ring; selectors call this."""
        return self._receive

    def ring(self) -> None:
        """End the sleep, or the next one."""
        with suppress(OSError):  # full: the thread is already being woken; closed: it has ended
            os.write(self._send, b".")

    def hush(self) -> None:
        """Clear the ring; the woken thread calls this before it reads the reason, so that no ring is lost."""
        with suppress(BlockingIOError):
            os.read(self._receive, 4096)

    def close(self) -> None:
        """Close the descriptors; a later ring has no effect."""
        fds = self._receive, self._send
        self._receive = self._send = -1
        for fd in fds:
            os.close(fd)
