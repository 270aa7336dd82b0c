"""The failure that caused the others of a round: the values that programs read, and the sentence for people. Pure."""

from dataclasses import dataclass

from pytorchjob_agent.contract.reasons import FailureKind


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """What the coordinator knows of it."""

    kind: FailureKind
    rank: int
    pod: str
    exit_code: int
    """As a shell reports it: 128 and the signal's number."""
    message: str = ""
    """What the worker or its agent wrote: the last line of the error, or where the rank hangs."""
    error: str = ""
    """The type of the uncaught error. Empty: unknown."""
    step: int | None = None
    """The last step that the round reached."""
    others: int = 0
    """How many other ranks failed too, or wait for it."""

    @property
    def sentence(self) -> str:
        """Which rank, on which pod, its error, its step, and how many other ranks failed."""
        where = f" at step {self.step}" if self.step is not None else ""
        who = f"rank {self.rank} ({self.pod})"
        match self.kind:
            case FailureKind.ENDED_EARLY:
                return f"{who} {ENDED_EARLY}{where}{self._also('failed too', 'failed too')}"
            case FailureKind.HANGS:
                also = self._also("waits for it", "wait for it")
                return f"{who} hangs{where}: {self.message or 'no message'}{also}"
            case FailureKind.EXITED:
                also = self._also("failed too", "failed too")
                return f"{who} exited with code {self.exit_code}{where}: {self.message or 'no message'}{also}"

    def _also(self, one: str, more: str) -> str:
        if not self.others:
            return ""
        return f"; 1 other rank {one}" if self.others == 1 else f"; {self.others} other ranks {more}"


ENDED_EARLY = "ended with success while other ranks waited for it in a collective"
"""What is said of a rank that is the cause for which others failed, although it has not failed itself."""
