"""Process trees of Linux: adopts orphans, finds and kills all descendants, ends with the parent."""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    """Set an option of this process; without Linux it is skipped, and PID 1 needs neither option."""
    try:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        return


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that it stays a descendant."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def follow_parent() -> None:
    """Get SIGTERM when the parent dies, even by SIGKILL; otherwise the workers would keep running."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def left_behind(mark: str) -> list[int]:
    """Return the processes below this one's parent whose environment has this text.

    The parent adopts what a child of this one leaves behind when it dies. It may have other children, which are none of
    ours: so only those count that were started with a text that is this process's alone.
    """
    text = os.fsencode(mark)
    return [pid for pid in descendants(os.getppid()) if pid != os.getpid() and text in _environment(pid)]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""  # it has ended, or is another user's


def reap() -> dict[int, int]:
    """Collect every child that has ended; return its return code by pid (negative: the signal)."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def _parent_of(entry: Path) -> int | None:
    """Return the parent's pid from /proc/<pid>/stat; the name in it may contain blanks and parentheses."""
    try:
        return int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None  # it ended meanwhile


def descendants(root: int) -> list[int]:
    """Return the pids of all descendants of `root`, in any session and process group."""
    return descendants_of((root,))[root]


def descendants_of(roots: Collection[int]) -> dict[int, list[int]]:
    """Return the pids of all descendants by root, from a single reading of /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        parent = _parent_of(entry)
        if parent is not None:
            children.setdefault(parent, []).append(int(entry.name))
    return {root: _below(root, children) for root in roots}


def _below(root: int, children: Mapping[int, list[int]]) -> list[int]:
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def kill_below(root: int, timeout: float = 5.0) -> dict[int, int]:
    """SIGKILL all descendants of `root` until none is left; after `timeout` seconds give up on those that do not end.

    Return the return codes of the children that have ended.
    """
    ended = reap()
    deadline = time.monotonic() + timeout
    while (pids := descendants(root)) and time.monotonic() < deadline:
        for pid in pids:
            _kill(pid)
        time.sleep(0.005)
        ended |= reap()
    return ended


def kill_all(find: Callable[[], Sequence[int]], timeout: float = 5.0) -> None:
    """SIGKILL what `find` returns until it returns nothing; after `timeout` seconds give up.

    No child is collected: subprocess and multiprocessing wait for theirs themselves.
    """
    deadline = time.monotonic() + timeout
    while (pids := find()) and time.monotonic() < deadline:
        for pid in pids:
            _kill(pid)
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Return True while a thread of the process runs; until then it has its files, its ports and its devices' memory.

    A process whose main thread has ended is a zombie, also while its other threads go on.
    """
    if _runs(Path(f"/proc/{pid}")):
        return True
    threads = Path(f"/proc/{pid}/task")
    try:
        return any(_runs(threads / thread) for thread in os.listdir(threads))
    except OSError:
        return False  # it ended meanwhile


def _runs(thread: Path) -> bool:
    try:
        state = (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


def handles(pid: int, signum: int) -> bool:
    """Return True if the process has a handler of its own for the signal; False where that is unknown."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        caught = next(line for line in lines if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (signum - 1) & 1)
    except (OSError, StopIteration, ValueError, IndexError):
        return False


def terminate(pid: int) -> None:
    """Send SIGTERM to a process, and to its group if it leads one, as torch does."""
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGTERM)
        else:
            os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # it has ended, or has become another user's
