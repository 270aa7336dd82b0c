"""Waits for descriptors of any number: `select.select` fails above 1,023, which a pod with 200 workers reaches."""

import math
import select
from collections.abc import Iterable
from typing import Protocol


class HasFileno(Protocol):
    """An open file, a socket, an alarm."""

    def fileno(self) -> int:
        """Return the descriptor."""


def wait_readable(waited: Iterable[HasFileno | int], seconds: float | None) -> list[HasFileno | int]:
    """Return those that can be read or have ended, as soon as there are some; None: wait without a limit.

    The result is empty after `seconds`. Raises ValueError for a closed file.
    """
    by_fd = {item if isinstance(item, int) else item.fileno(): item for item in waited}
    poll = select.poll()
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    milliseconds = None if seconds is None else math.ceil(max(seconds, 0.0) * 1000)
    return [by_fd[fd] for fd, _ in poll.poll(milliseconds)]
