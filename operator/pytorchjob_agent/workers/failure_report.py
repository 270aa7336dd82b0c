"""Explains why workers failed: finds the first failure among many, and writes it into the termination log."""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from signal import SIGKILL, SIGTERM, Signals
from typing import Any

from pytorchjob_agent.contract.environment import TERMINATION_LOG
from pytorchjob_agent.contract.first_failure import ENDED_EARLY
from pytorchjob_agent.contract.noted_end import NotedEnd
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.root_cause import Evidence, choose
from pytorchjob_agent.contract.termination import TERMINATION_LOG_PATH, ExitCode, TerminationMessage, exit_code_of
from pytorchjob_agent.workers.output import rank_prefix

_log = logging.getLogger(__name__)
_TAIL_LINES = 50
_ABORT = re.compile(r"(?:what\(\):[ \t]*|(?=Watchdog caught ))(.+)")
"""What C++ prints of an error that nobody catches, and what torch's watchdog of NCCL prints before it aborts."""


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """One worker that failed; `error` is torch's error file, `tail` the end of its output.

    The code 0 is that of a worker that ended with success before others failed: it may be the cause.
    """

    rank: int
    local_rank: int
    returncode: int
    timestamp: float = 0
    error: Mapping[str, Any] = field(default_factory=dict)
    tail: str | None = ""
    """None: its output is not kept."""
    noted: NotedEnd = field(default_factory=NotedEnd)

    @property
    def evidence(self) -> Evidence:
        """Return what decides whether this failure caused the others; an error file is older than any signal."""
        code = ExitCode.WORKER_FAILED if self.error else exit_code_of(self.returncode)
        noted = self.noted
        return Evidence(self.timestamp, self.rank, code, noted.errors, noted.raised_in, early=code == 0)


def first_failure(failures: Sequence[WorkerFailure]) -> WorkerFailure:
    """Return the failure that caused the others."""
    return choose(failures, lambda failure: failure.evidence)


def explain_failures(failures: Sequence[WorkerFailure]) -> TerminationMessage:
    """Return the message that names the first failure and the ranks that failed after it."""
    broken = [each for each in failures if each.noted.broken_device]
    first = first_failure(broken or failures)
    failed, early = [each for each in failures if not each.evidence.early], first.evidence.early
    message, traceback = _recorded(first.error)
    return TerminationMessage(
        reason=ExitReason.DEVICE_FAILED if broken else ExitReason.WORKER_FAILED,
        exit_code=_code(first_failure(failed) if early and failed else first),
        rank=first.rank,
        local_rank=first.local_rank,
        message=ENDED_EARLY if early else first.noted.message or message or _from_output(first),
        traceback=first.noted.traceback or traceback or "\n".join((first.tail or "").splitlines()[-_TAIL_LINES:]),
        errors=first.noted.errors,
        raised_in=first.noted.raised_in,
        early=early,
        failed_after=tuple(sorted(failure.rank for failure in failed if failure is not first)),
    )


def _code(failure: WorkerFailure) -> int:
    """Return the worker's exit code; a worker that was stopped after its error had no time to set one."""
    if failure.returncode in (-SIGTERM, -SIGKILL) and (failure.error or failure.noted.errors):
        return ExitCode.WORKER_FAILED
    return exit_code_of(failure.returncode)


def _recorded(error: Mapping[str, Any]) -> tuple[str, str]:
    """Return the error and the stack that torch's @record wrote; empty if the script has no @record."""
    inner = error.get("message")
    if not isinstance(inner, dict):
        return (inner, "") if isinstance(inner, str) and "errorTraits" not in error else ("", "")
    extra = inner.get("extraInfo")
    stack = extra.get("py_callstack", "") if isinstance(extra, dict) else ""
    return str(inner.get("message", "")), str(stack)


def _from_output(failure: WorkerFailure) -> str:
    if failure.returncode < 0:
        name = Signals(-failure.returncode).name
        if name == "SIGABRT" and (printed := _ABORT.findall(failure.tail or "")):
            return f"killed by {name}: {printed[-1].strip()}"
        return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    if failure.tail is None:
        return f"exited with {failure.returncode}"
    own = rank_prefix(failure.rank)
    lines = list(filter(None, (line.removeprefix(own).strip() for line in failure.tail.splitlines())))
    return lines[-1] if lines else f"exited with {failure.returncode} and printed nothing"


def sentence(message: TerminationMessage) -> str:
    """Return the message as one line for a person."""
    where = "" if message.rank is None else f"rank {message.rank} (local rank {message.local_rank}): "
    after = f"; {len(message.failed_after)} more ended after it" if message.failed_after else ""
    return f"{message.reason}: {where}{message.message}{after} (exit code {message.exit_code})"


def write_termination_log(message: TerminationMessage, env: Mapping[str, str]) -> None:
    """Write the message to the file that the kubelet reads; outside a pod it does not exist and is not created."""
    named = env.get(TERMINATION_LOG)
    flags = os.O_WRONLY | os.O_TRUNC | (os.O_CREAT if named else 0)
    try:
        fd = os.open(named or TERMINATION_LOG_PATH, flags, 0o644)
        with open(fd, "w", encoding="utf-8", errors="replace") as file:
            file.write(message.to_json())
    except OSError as error:
        _log.debug("no termination log: %s", error)
