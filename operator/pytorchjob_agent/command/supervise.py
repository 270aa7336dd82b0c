"""Decides what the first process of the pod does next: wait, forward a signal, kill, start again, or exit.

Pure: the time, the signals and the child's return code come in as a `View`; `first_process` acts on the decision.
"""

from dataclasses import dataclass
from enum import Enum, auto
from signal import SIGINT, Signals

from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.termination import ExitCode, TerminationMessage, exit_code_of


class LauncherCrash(Enum):
    """How far a launcher was that ended without a message."""

    BEFORE = auto()
    """It ran no workers of this agent: it was a program of the user's, which ends as it likes."""
    RUNNING = auto()


@dataclass(frozen=True, slots=True)
class View:
    """What is known at one moment."""

    now: float
    grace: float
    signals: tuple[int, ...] = ()  # the stop signals, in their order
    asked_at: float = 0.0
    forwarded: bool = False
    child: int | None = None  # the launcher's return code, None while it runs
    report: TerminationMessage | LauncherCrash = LauncherCrash.RUNNING
    lives: int = 0  # how often the launcher may be started again in this container


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing before `until` (None: before the next event)."""

    until: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Forward:
    """Forward the signal to the launcher, which stops its workers."""

    signum: int
    reason: str


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL all descendants."""

    reason: str


@dataclass(frozen=True, slots=True)
class Exit:
    """Kill all descendants, write the message, exit with the code."""

    message: TerminationMessage | None  # None: success
    exit_code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Relaunch:
    """SIGKILL all descendants, then start another launcher: faster than the kubelet starts another container."""

    reason: str


Decision = Wait | Forward | Kill | Exit | Relaunch


def next_action(view: View) -> Decision:
    """Return the next step and its reason."""
    if view.child is not None:
        crashed = view.child < 0 and view.report is LauncherCrash.RUNNING and not view.signals
        if crashed and view.lives > 0:
            return Relaunch(f"the launcher {_end(view.child)}: starting it again")
        return _leave(view)
    if not view.signals:
        return Wait(None, "the workers run")
    name = Signals(view.signals[0]).name
    if not view.forwarded:
        return Forward(view.signals[0], f"{name} received")
    if len(view.signals) > 1:
        return Kill(f"a second signal after {name}: killing the workers at once")
    deadline = view.asked_at + view.grace
    if view.now >= deadline:
        return Kill(f"the workers did not stop within {view.grace:g} s after {name}")
    return Wait(deadline, f"the workers stop after {name}")


def _leave(view: View) -> Exit:
    if view.child == 0:
        return Exit(None, ExitCode.OK, "the workers succeeded")
    code = exit_code_of(view.child or 0)
    if view.report is LauncherCrash.BEFORE:
        return Exit(None, code, f"the program {_end(view.child or 0)}")
    if view.signals:
        return _message_of(_drained(view.signals[0]))
    if isinstance(view.report, TerminationMessage):
        return _message_of(view.report)
    return _message_of(
        TerminationMessage(ExitReason.AGENT_FAILED, code, message=f"the launcher {_end(view.child or 0)}")
    )


def _message_of(message: TerminationMessage) -> Exit:
    return Exit(message, message.exit_code, message.message)


def _drained(signum: int) -> TerminationMessage:
    code = ExitCode.INTERRUPTED if signum == SIGINT else exit_code_of(-signum)
    return TerminationMessage(ExitReason.DRAINED, code, message=f"{Signals(signum).name}: the workers were stopped")


def _end(returncode: int) -> str:
    if returncode >= 0:
        return f"exited with {returncode} without a message"
    hint = " (out of memory?)" if returncode == -9 else ""
    return f"was killed by {Signals(-returncode).name}{hint}"
