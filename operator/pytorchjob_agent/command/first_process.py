"""The first process of the pod: signals, orphans, exit code. `supervise` decides; torch runs in the child only.

`__main__` starts it for `pytorchjob-agent run`, and the hook in `command/startup` for a command of the user's. It never
blocks in C++, so SIGTERM works at any time, even before the first rendezvous. The way of a SIGTERM:
`system/signals` blocks it and waits for it, `supervise` decides to forward it to the launcher, and the launcher's
process receives it in `rendezvous/wakeup` (with a coordinator) or in torch's own handler.
"""

import os
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from pytorchjob_agent.command.supervise import Crash, Exit, Forward, Kill, Relaunch, View, next_action
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
_BEGUN = b"."
"""What a launcher sends when its workers become this agent's."""


@dataclass(frozen=True, slots=True)
class Below:
    """This is a process below the first one: the launcher's, which reports to the first one."""

    directory: Path
    """For the launcher's files; the first process removes it."""
    pipe: int

    def begin(self) -> None:
        """Tell the first process that its child runs workers, and will report how they end."""
        os.write(self.pipe, _BEGUN)

    def report(self, message: TerminationMessage) -> None:
        """Give the first process the reason of the end."""
        os.write(self.pipe, message.to_json().encode())


def run() -> int | Below:
    """Fork the launcher's process. Returns there at once, and in the first process the exit code of the pod."""
    grace = seconds(os.environ, GRACE, DEFAULT_GRACE)
    directory = Path(tempfile.mkdtemp(prefix="pytorchjob-agent-"))
    signals.block()
    processes.adopt_orphans()
    lives = _LIVES if os.environ.get(COORDINATOR) else 0  # the coordinator informs the other members of the restart
    while True:
        receive, send = os.pipe()
        os.set_blocking(receive, False)
        pid = os.fork()
        if pid == 0:
            os.close(receive)
            _detach()
            return Below(directory, send)
        os.close(send)
        end = _supervise(View(now=time.monotonic(), grace=grace, lives=lives), pid, receive)
        os.close(receive)
        if isinstance(end, Exit):
            shutil.rmtree(directory, ignore_errors=True)
            return _end(end)
        lives -= 1


def _detach() -> None:
    os.setpgid(0, 0)  # a terminal's Ctrl-C reaches only the parent, which forwards it once
    processes.follow_parent()
    signals.restore()


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


def _read_report(receive: int) -> TerminationMessage | Crash:
    try:
        sent = os.read(receive, 65536)
    except BlockingIOError:  # its descendants hold the pipe
        sent = b""
    try:
        return TerminationMessage.from_json(sent.removeprefix(_BEGUN).decode())
    except ContractError:
        return Crash.RUNNING if sent.startswith(_BEGUN) else Crash.BEFORE


def _end(leave: Exit) -> int:
    if leave.message is not None:
        say(sentence(leave.message))
        write_termination_log(leave.message, os.environ)
    return leave.exit_code
