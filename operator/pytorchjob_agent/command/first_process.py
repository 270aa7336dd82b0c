"""The first process of the pod: signals, orphans, exit code. `supervise` decides; torch runs in the child only.

`fork` starts the launcher below it: for `pytorchjob-agent run`, and for a command of the user's (`startup`). It never
blocks in C++, so SIGTERM works at any time, even before the first rendezvous. The way of a SIGTERM:
`system/signals` blocks it and waits for it, `supervise` decides to forward it to the launcher, and the launcher's
process receives it in `rendezvous/wakeup` (with a coordinator) or in torch's own handler.
"""

import os
import shutil
import time
from dataclasses import replace

from pytorchjob_agent.command.below import BEGUN, PASSED_ON
from pytorchjob_agent.command.supervise import Exit, Forward, Kill, LauncherCrash, Relaunch, View, next_action
from pytorchjob_agent.contract.coordinator_endpoint import COORDINATOR
from pytorchjob_agent.contract.environment import DEFAULT_GRACE, GRACE
from pytorchjob_agent.contract.reading import ContractError, seconds
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.termination import ExitCode, TerminationMessage
from pytorchjob_agent.system import processes, signals
from pytorchjob_agent.system.console import say
from pytorchjob_agent.workers.failure_report import sentence, write_termination_log

_TICK = 3600.0
_LIVES = 10
"""Number of launchers that may crash in one container before the kubelet has to restart it."""


def supervise(pid: int, receive: int, deaths: int) -> int | None:
    """Return the exit code of the pod once the launcher with this pid, and all below it, have ended.

    Return None if another launcher has to be started; `deaths` is how often that was so before. The launcher reports
    through `receive`.
    """
    processes.adopt_orphans()
    try:
        grace = seconds(os.environ, GRACE, DEFAULT_GRACE)
    except ContractError as error:
        processes.kill_below(os.getpid())
        message = TerminationMessage(ExitReason.BAD_SETUP, ExitCode.SETUP, message=str(error))
        return _end(Exit(message, ExitCode.SETUP, message.message))
    lives = max(_LIVES - deaths, 0) if os.environ.get(COORDINATOR) else 0  # the coordinator tells the other members
    launcher = _Launcher(pid, receive)
    end = _supervise(View(now=time.monotonic(), grace=grace, lives=lives), launcher)
    launcher.clear_up()
    return _end(end) if isinstance(end, Exit) else None


class _Launcher:
    """The process below, and what it has sent."""

    def __init__(self, pid: int, receive: int) -> None:
        self.pid, self._receive = pid, receive
        self._sent = b""

    def last_words(self) -> TerminationMessage | LauncherCrash:
        """Return its message; it has ended."""
        try:
            self._sent = os.read(self._receive, 65536)
        except BlockingIOError:  # its descendants hold the pipe
            return LauncherCrash.BEFORE
        try:
            return TerminationMessage.from_json(self._sent.partition(b"\n")[2].decode())
        except ContractError:
            begun = self._sent.startswith(BEGUN) and not self._sent.endswith(PASSED_ON)
            return LauncherCrash.RUNNING if begun else LauncherCrash.BEFORE

    def clear_up(self) -> None:
        """Remove its folder."""
        if self._sent.startswith(BEGUN):
            shutil.rmtree(os.fsdecode(self._sent.partition(b"\n")[0].removeprefix(BEGUN)), ignore_errors=True)


def _supervise(view: View, launcher: _Launcher) -> Exit | Relaunch:
    """Observe, decide and act until the launcher and all its descendants have ended."""
    while True:
        decision = next_action(view)
        if isinstance(decision, Exit | Relaunch):
            processes.kill_below(os.getpid())
            if isinstance(decision, Relaunch):
                say(decision.reason)
            return decision
        if isinstance(decision, Forward):
            os.kill(launcher.pid, decision.signum)
            view = replace(view, forwarded=True)
            continue
        if isinstance(decision, Kill):
            say(decision.reason)
            ended = processes.kill_below(os.getpid())
            view = _observe(view, ended, launcher)
            view = view if view.child is not None else replace(view, child=-9)  # SIGKILL did not end it in time
            continue
        until = decision.until if decision.until is not None else view.now + _TICK
        view = _take(view, signals.wait(until - view.now))
        view = _observe(view, processes.reap(), launcher)


def _take(view: View, signum: int | None) -> View:
    now = time.monotonic()
    if signum is None:
        return replace(view, now=now)
    asked = view.asked_at if view.signals else now
    return replace(view, now=now, signals=(*view.signals, signum), asked_at=asked)


def _observe(view: View, ended: dict[int, int], launcher: _Launcher) -> View:
    if launcher.pid not in ended:
        return view
    return replace(view, child=ended[launcher.pid], report=launcher.last_words())


def _end(leave: Exit) -> int:
    if leave.message is not None:
        say(sentence(leave.message))
        write_termination_log(leave.message, os.environ)
    return leave.exit_code
