"""The parent of one replica's command, forked from the runner: what a container's sandbox is in a cluster.

It starts the command in a session of its own, tells how it ended, and sees to it that nothing of it is left: when the
command has ended, when it is told to, and when the runner is gone, however the runner went. It may not decide anything.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from pytorchjob_agent.contract.environment import exit_code_of
from pytorchjob_operator.local.command import Command

TERMINATE = b"T"
"""Written to the control pipe: SIGTERM to the command. The pipe's end means SIGKILL to everything."""
STARTED, EXITED, ERROR = "started", "exited", "error"
"""Keys of the one-line JSON reports."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE = 0.01
_ROUNDS = 1000
"""Ten seconds for killed processes to be gone; one that hangs in the kernel longer cannot be helped."""


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends (Linux; nothing elsewhere)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def keep(command: Command, control: int, report: int, output: int) -> NoReturn:
    """Run the command to its end, in a process that was forked for it; never returns."""
    wakeup, code = _detach(control, report, output), 1
    try:
        _run(command, control, report, wakeup)
        code = 0
    except BrokenPipeError:
        pass  # the runner is gone: nobody is left to tell
    finally:
        kill_descendants()
        os._exit(code)


def kill_descendants() -> None:
    """SIGKILL everything below this process, also what is forked meanwhile, and reap it."""
    for _ in range(_ROUNDS):
        for pid in list(_descendants(os.getpid())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        select.select([], [], [], _PATIENCE)


def _detach(control: int, report: int, output: int) -> int:
    """Leave the runner's terminal, signals and files; return what becomes readable when a child ends."""
    os.setsid()
    adopt_orphans()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        # Not SIG_IGN: the command would inherit it.
        signal.signal(number, lambda *_: None)
    devnull = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((devnull, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    _close_others({control, report})
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    return readable


def _close_others(kept: set[int]) -> None:
    start = 3
    for fd in sorted(kept):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX") if sys.platform == "darwin" else 65536)


def _run(command: Command, control: int, report: int, wakeup: int) -> None:
    try:
        started = subprocess.Popen(  # noqa: S603 - running the user's command is the purpose
            command.argv, env=dict(command.env), cwd=command.cwd, start_new_session=True, preexec_fn=_die_with_parent()
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or error
        _tell(report, ERROR, f"cannot start {command.argv[0]!r}: {why} (looked for on this machine, not in an image)")
        return
    _tell(report, STARTED, started.pid)
    started.returncode = 0  # reaped here, not by Popen
    while True:
        code = _reap(started.pid)
        if code is not None:
            kill_descendants()
            _tell(report, EXITED, code)
            return
        ready, _, _ = select.select([control, wakeup], [], [])
        if wakeup in ready:
            os.read(wakeup, 512)
        if control in ready and not _obey(control, started.pid):
            return


def _obey(control: int, pid: int) -> bool:
    """Pass a SIGTERM on; False when it is time to kill."""
    told = os.read(control, 64)
    if told:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)
    return bool(told)


def _reap(main: int) -> int | None:
    """Reap every child that has ended; the exit code of the command, if it was among them."""
    result = None
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            if child[0] == main:
                result = exit_code_of(os.waitstatus_to_exitcode(child[1]))
    return result


def _tell(report: int, key: str, value: object) -> None:
    os.write(report, json.dumps({key: value}).encode() + b"\n")


def _die_with_parent() -> Callable[[], None] | None:
    """What makes the command die with its keeper; looked up before the fork, where that is still safe."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return die_with_parent


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _descendants(root: int) -> Iterator[int]:
    """Every process below `root`, found by its parent."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    while found:
        pid = found.pop()
        yield pid
        found.extend(children.get(pid, ()))


def _parents() -> Iterator[tuple[int, int]]:
    """Every process of this machine with its parent; where there is no /proc, ps knows."""
    if not Path("/proc/self/stat").exists():
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)  # noqa: S607
        yield from ((int(pid), int(parent)) for pid, parent in map(str.split, listing.stdout.splitlines()))
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            yield int(entry.parent.name), int(entry.read_text(errors="replace").rpartition(")")[2].split()[1])
