"""The kernel's notice of the end of processes, for `goodput`: a process of its own, which nothing else delays.

python -m benchmarks.process_ends FILE

Each line of the input has the id of a process. The file gets a line for the end of each.
"""

import json
import os
import select
import sys
import time
from contextlib import suppress
from typing import TextIO

ENDED = "ended"
_INPUT = 0


class Ends:
    """The processes that are watched."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._watched, self._poll = file, set[int](), select.poll()
        self._poll.register(_INPUT, select.POLLIN)

    def watch(self) -> None:
        """Note each end, until the input is closed and all processes have ended."""
        told = True
        while told or self._watched:
            ready, now = [fd for fd, _ in self._poll.poll()], time.time()
            for fd in ready:
                if fd != _INPUT:
                    self._ended(fd, now)
            if _INPUT in ready:
                told = self._told()

    def _ended(self, fd: int, now: float) -> None:
        self._file.write(json.dumps([ENDED, 0, now]) + "\n")
        self._watched.remove(fd)
        self._poll.unregister(fd)
        os.close(fd)

    def _told(self) -> bool:
        """Watch more processes; False at the end of the input."""
        pids = os.read(_INPUT, 4096).split()
        for pid in pids:
            fd = os.pidfd_open(int(pid))
            self._watched.add(fd)
            self._poll.register(fd, select.POLLIN)
        if not pids:
            self._poll.unregister(_INPUT)
        return bool(pids)


def main() -> None:
    """Watch, before all other processes where the system allows it."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with open(sys.argv[1], "a", encoding="ascii", buffering=1) as file:
        Ends(file).watch()


if __name__ == "__main__":
    main()
