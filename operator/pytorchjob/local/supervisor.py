"""The supervisor of one replica: the parent process of its command, forked from the runner.

It starts the command in a session of its own, reports how the command ended, and leaves no process behind: when the
command has ended, when the runner requests it, and when the runner is gone for any reason. It decides nothing. In a
cluster the container runtime does this. `replica_process` is the runner's end of the pipes.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from pytorchjob.local import process_tree
from pytorchjob_agent.contract.environment import FIRST_PROCESS_PARENT
from pytorchjob_agent.contract.termination import exit_code_of

TERMINATE = b"T"
"""Written to the control pipe: send SIGTERM to the command. The end of the pipe means SIGKILL to every process."""
STARTED, EXITED, ERROR, AT = "started", "exited", "error", "at"
"""Keys of the one-line JSON reports."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, its complete environment, and its working directory."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str


def supervise(command: Command, control: int, report: int, output: int) -> NoReturn:
    """Run the command to its end, in a process that was forked for it; never returns."""
    wakeup, code = _detach(control, report, output), 1
    try:
        _run(command, control, report, wakeup)
        code = 0
    except BrokenPipeError:
        pass  # the runner is gone: no process reads reports any more
    finally:
        process_tree.kill_descendants()
        os._exit(code)


def _detach(control: int, report: int, output: int) -> int:
    """Leave the runner's terminal, signals and files; return a descriptor that is readable once a child ends."""
    os.setsid()
    process_tree.adopt_orphans()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        # A handler instead of SIG_IGN: the command would inherit an ignored signal.
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
            command.argv,
            env={**command.env, FIRST_PROCESS_PARENT: str(os.getpid())},
            cwd=command.cwd,
            start_new_session=True,
            preexec_fn=process_tree.die_with_parent(),
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or error
        _send(report, ERROR, f"cannot start {command.argv[0]!r} on this machine (its image is not used): {why}")
        return
    _send(report, STARTED, started.pid)
    started.returncode = 0  # reaped here, not by Popen
    with selectors.DefaultSelector() as selector:
        for fd in (control, wakeup):
            selector.register(fd, selectors.EVENT_READ)
        while (code := _reap(started.pid)) is None:
            ready = {key.fd for key, _ in selector.select()}
            if wakeup in ready:
                os.read(wakeup, 512)
            if control in ready and not _forward_sigterm(control, started.pid):
                return
    at = time.monotonic()
    process_tree.kill_descendants()
    os.write(report, json.dumps({EXITED: code, AT: at}).encode() + b"\n")


def _forward_sigterm(control: int, pid: int) -> bool:
    """Send SIGTERM to the command's process group if the runner requests it; False once the control pipe has ended."""
    requested = os.read(control, 64)
    if requested:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)
    return bool(requested)


def _reap(main: int) -> int | None:
    """Reap every ended child; returns the command's exit code if the command was among them."""
    status = process_tree.reap().get(main)
    return None if status is None else exit_code_of(status)


def _send(report: int, key: str, value: object) -> None:
    os.write(report, json.dumps({key: value}).encode() + b"\n")
