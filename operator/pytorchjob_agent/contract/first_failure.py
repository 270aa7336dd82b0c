"""The failure that caused the others of a round: the values that programs read, and the sentence for people. Pure."""

from dataclasses import dataclass

from pytorchjob_agent.contract.collectives import CollectiveFault
from pytorchjob_agent.contract.reasons import CollectiveFaultKind, FailureKind


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
    collective: CollectiveFault | None = None
    """The collective that the rank keeps from ending. None: not known, or it failed for another reason."""
    place: str = ""
    """Of a hang: where the rank is, by its script's innermost frame. Empty: it gives no stack."""

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
                return f"{who} hangs{where}: {self._said}{also}"
            case FailureKind.EXITED:
                also = self._also("failed too", "failed too")
                return f"{who} exited with code {self.exit_code}{where}: {self._said}{also}"

    @property
    def _said(self) -> str:
        fault = "" if self.collective is None else collective_words(self.collective)
        return "; ".join(filter(None, (self.message, fault))) or "no message"

    def _also(self, one: str, more: str) -> str:
        if not self.others:
            return ""
        return f"; 1 other rank {one}" if self.others == 1 else f"; {self.others} other ranks {more}"


def collective_words(fault: CollectiveFault) -> str:
    """Say what the ranks at fault did in the place of the collective of the others."""
    others = fault.ranks[1:]
    it = "it" if not others else f"it, like {len(others)} other rank{'s'[: len(others) - 1]},"
    number = f"collective {fault.number} of group {fault.group}"
    call = f"{fault.call}, {number}" if fault.call else number
    own = fault.own or "another collective"
    at = f" ({fault.place})" if fault.place else ""
    match fault.kind:
        case CollectiveFaultKind.NOT_BEGUN:
            return f"{it} has not begun {call}, in which other ranks wait{at}"
        case CollectiveFaultKind.DIFFERS:
            return f"{it} has begun {own} where other ranks have begun {call}{at}"
        case CollectiveFaultKind.OTHER_ORDER:
            return f"{it} has begun {own} in another group before {call}, in which other ranks wait{at}"


ENDED_EARLY = "ended with success while other ranks waited for it in a collective"
"""What is said of a rank that is the cause for which others failed, although it has not failed itself."""
