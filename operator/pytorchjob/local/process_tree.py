"""The process tree below this process: adopts orphans, and finds, kills and reaps all descendants.

The runner and each supervisor of a replica use it. The agent has a module of its own for a pod's processes
(`pytorchjob_agent/system/processes.py`): the operator imports only the agent's contract, which starts no process, and
only a local run also works without Linux.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_INTERVAL = 0.01
_KILL_ATTEMPTS = 1000
"""Ten seconds in total; a process that hangs in the kernel for longer is left alone."""


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends; without effect where the system is not Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> Callable[[], None] | None:
    """Return a function for `preexec_fn` that has the child killed when its parent ends; None without Linux.

    The C library is loaded before the fork, where loading is still safe.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def request_sigkill() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return request_sigkill


def reap() -> dict[int, int]:
    """Reap every ended child; returns the return code of each by pid, negative for a signal."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = os.waitstatus_to_exitcode(child[1])
    return ended


def kill_descendants() -> None:
    """Kill every descendant with SIGKILL, also those that are forked meanwhile, and reap them."""
    for _ in range(_KILL_ATTEMPTS):
        for pid in list(_descendants(os.getpid())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_KILL_INTERVAL)


def _descendants(root: int) -> Iterator[int]:
    """Yield every process below `root`."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    while found:
        pid = found.pop()
        yield pid
        found.extend(children.get(pid, ()))


def _parents() -> Iterator[tuple[int, int]]:
    """Yield each process of this machine with its parent, from /proc or, without it, from ps."""
    if not Path("/proc/self/stat").exists():
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)  # noqa: S607
        yield from ((int(pid), int(parent)) for pid, parent in map(str.split, listing.stdout.splitlines()))
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            yield int(entry.parent.name), int(entry.read_text(errors="replace").rpartition(")")[2].split()[1])
