"""How an agent ends: its exit codes, and the termination message in the pod's status. Pure.

The agent writes `TerminationMessage.to_json` into the pod's termination log; the operator reads it with `from_json`.
"""

import json
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from typing import Self

from pytorchjob_agent.contract.reading import ObjectReader

TERMINATION_LOG_PATH = "/dev/termination-log"
TERMINATION_LIMIT = 4096  # bytes; the kubelet cuts off the rest, which would leave broken JSON


class ExitCode(IntEnum):
    """The agent's own exit codes; a failed worker's code (1-127, or 128 + its signal) is passed on unchanged."""

    OK = 0
    WORKER_FAILED = 1  # a worker failed without a code of its own
    USAGE = 2  # the command line is wrong (argparse's code)
    SETUP = 78  # the image or the environment is wrong: no torch, a broken variable
    INTERRUPTED = 130
    DRAINED = 143  # SIGTERM: the pod was asked to stop, and stopped
    PREFLIGHT = 200  # this node is not fit: try another one
    RENDEZVOUS = 201  # the other members were not reached in time: try again
    FENCED = 202  # a newer incarnation has this pod's place


def exit_code_of(returncode: int) -> int:
    """Return the exit code that a shell reports for a process' return code: -9 becomes 137."""
    return 128 - returncode if returncode < 0 else returncode


@dataclass(frozen=True, slots=True)
class TerminationMessage:
    """Why the agent ended, as the pod's status shows it: the first failure, and the ranks that failed after it."""

    reason: str
    exit_code: int
    rank: int | None = None
    local_rank: int | None = None
    message: str = ""
    traceback: str = ""
    failed_after: tuple[int, ...] = ()
    errors: tuple[str, ...] = ()
    """Types of the first failure's error, and the module that raised it (`root_cause`)."""
    raised_in: str = ""
    early: bool = False
    """True if the rank ended with success while others needed it; the exit code is that of the first other one."""
    version: int = 1

    def to_json(self) -> str:
        """Return JSON of at most 4096 bytes: the head of a long traceback goes first, then the message's end."""
        fitting = self._capped()
        while len(text := fitting._dumps()) > TERMINATION_LIMIT:
            fitting = fitting._shorter()
        return text.decode()

    def _dumps(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def _capped(self) -> Self:
        """Drop what can never fit, so that the loop is short even for a traceback of megabytes."""
        tail, head = slice(-TERMINATION_LIMIT, None), slice(TERMINATION_LIMIT)
        return replace(
            self,
            reason=self.reason[:256],
            message=self.message[head],
            traceback=self.traceback[tail],
            failed_after=self.failed_after[:1024],
            errors=tuple(name[:128] for name in self.errors[:4]),
            raised_in=self.raised_in[:128],
        )

    def _shorter(self) -> Self:
        """Drop an eighth of the least important text; the caller repeats this until the message fits."""
        if len(self.traceback) > 64:
            return replace(self, traceback=self.traceback[len(self.traceback) // 8 :])
        if len(self.failed_after) > 8:
            return replace(self, failed_after=self.failed_after[: len(self.failed_after) // 2])
        if len(self.message) > 64:
            return replace(self, message=self.message[: -(len(self.message) // 8)])
        return replace(self, reason=self.reason[:64], traceback="")

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; unknown fields of a newer agent are ignored."""
        fields = ObjectReader.parse("termination message", text[: 4 * TERMINATION_LIMIT])
        version = fields.whole("version")
        if version is None:
            raise fields.wrong("version", None, "a whole number")
        return cls(
            reason=fields.text("reason"),
            exit_code=fields.whole("exit_code") or 0,
            rank=fields.whole("rank"),
            local_rank=fields.whole("local_rank"),
            message=fields.text("message"),
            traceback=fields.text("traceback"),
            failed_after=fields.whole_numbers("failed_after"),
            errors=tuple(name for name in fields.items("errors") if isinstance(name, str)),
            raised_in=fields.text("raised_in"),
            early=fields.switch("early"),
            version=version,
        )
