"""The first process of the pod: signals, orphans, exit code. `supervise` decides; torch runs in the child only.

It never blocks in C++, so SIGTERM works at any time, even before the first rendezvous. The way of a SIGTERM:
`system/signals` blocks it and waits for it, `supervise` decides to forward it to the launcher, and the launcher's
process receives it in `rendezvous/wakeup` (with a coordinator) or in torch's own handler.
"""

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from pytorchjob_agent.command import launcher_process
from pytorchjob_agent.command.supervise import Exit, Forward, Kill, Relaunch, View, next_action
from pytorchjob_agent.contract.coordinator_endpoint import COORDINATOR
from pytorchjob_agent.contract.environment import DEFAULT_GRACE, GRACE
from pytorchjob_agent.contract.reading import ContractError, seconds
from pytorchjob_agent.contract.termination import TerminationMessage
from pytorchjob_agent.system import processes, signals
from pytorchjob_agent.system.console import say
from pytorchjob_agent.workers.failure_report import sentence, write_termination_log

_TICK = 3600.0
_LIVES = 10
"""Number of launchers that may crash in one container before the kubelet has to restart it."""


def run(argv: list[str]) -> int:
    """Run torchrun's arguments to their end and return the exit code of the pod."""
    grace = seconds(os.environ, GRACE, DEFAULT_GRACE)
    signals.block()
    processes.adopt_orphans()
    lives = _LIVES if os.environ.get(COORDINATOR) else 0  # the coordinator informs the other members of the restart
    with tempfile.TemporaryDirectory(prefix="pytorchjob-agent-") as directory:
        while True:
            pid, receive = _launch(argv, Path(directory))
            end = _supervise(View(now=time.monotonic(), grace=grace, lives=lives), pid, receive)
            os.close(receive)
            if isinstance(end, Exit):
                return _end(end)
            lives -= 1


def _launch(argv: list[str], directory: Path) -> tuple[int, int]:
    """Fork a launcher; returns its pid and the pipe by which it reports."""
    receive, send = os.pipe()
    os.set_blocking(receive, False)
    pid = os.fork()
    if pid == 0:
        _be_child(argv, directory, send)
    os.close(send)
    return pid, receive


def _be_child(argv: list[str], directory: Path, pipe: int) -> None:
    """Run the launcher in the child; never returns into the parent's frames."""
    code = 1
    try:
        code = launcher_process.main(argv, directory, pipe)
    finally:
        os._exit(code)


def _supervise(view: View, pid: int, receive: int) -> Exit | Relaunch:
    """Observe, decide and act until the launcher and all its descendants have ended."""
    while True:
        decision = next_action(view)
        if isinstance(decision, Exit | Relaunch):
            processes.kill_below(os.getpid())
            if isinstance(decision, Relaunch):
                say(decision.reason)
            return decision
        if isinstance(decision, Forward):
            os.kill(pid, decision.signum)
            view = replace(view, forwarded=True)
            continue
        if isinstance(decision, Kill):
            say(decision.reason)
            ended = processes.kill_below(os.getpid())
            view = _observe(view, ended, pid, receive)
            view = view if view.child is not None else replace(view, child=-9)  # SIGKILL did not end it in time
            continue
        until = decision.until if decision.until is not None else view.now + _TICK
        view = _take(view, signals.wait(until - view.now))
        view = _observe(view, processes.reap(), pid, receive)


def _take(view: View, signum: int | None) -> View:
    now = time.monotonic()
    if signum is None:
        return replace(view, now=now)
    asked = view.asked_at if view.signals else now
    return replace(view, now=now, signals=(*view.signals, signum), asked_at=asked)


def _observe(view: View, ended: dict[int, int], pid: int, receive: int) -> View:
    if pid not in ended:
        return view
    return replace(view, child=ended[pid], report=_read_report(receive))


def _read_report(receive: int) -> TerminationMessage | None:
    try:
        return TerminationMessage.from_json(os.read(receive, 65536).decode())
    except (BlockingIOError, ContractError):
        return None  # the launcher ended before it could report


def _end(leave: Exit) -> int:
    if leave.message is not None:
        say(sentence(leave.message))
        write_termination_log(leave.message, os.environ)
    return leave.exit_code
