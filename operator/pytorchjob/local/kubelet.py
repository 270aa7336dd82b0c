"""What the kubelet decides when a pod's container ends: restart it in place, or end the pod.

Pure: it starts nothing and reads no clock. The plan decides whether an ended pod is replaced.
"""

import signal
from dataclasses import dataclass

from pytorchjob_operator.model import RestartPolicy
from pytorchjob_operator.observed import PodPhase

START_ERROR = 128
"""Exit code of a container whose command could not be started, the same as with container runtimes."""

_FIRST_DELAY = 1.0
_LONGEST_DELAY = 30.0
_MAX_DOUBLINGS = 16
_CALM = 60.0
"""A container that ran this long is not in a crash loop: its back-off is reset."""


@dataclass(frozen=True, slots=True)
class EarlyExits:
    """Exits of a replica in quick succession, also in replaced pods."""

    crashes: int = 0
    """Exits in a row soon after a start; the back-off grows with them."""
    code: int = 0
    """Exit code of the last."""
    same: int = 0
    """How many of them, up to the last, had its code."""

    def then(self, code: int, ran: float) -> "EarlyExits":
        """Return the exits including another one, after `ran` seconds."""
        if ran >= _CALM:
            return EarlyExits(1, code, 0)
        return EarlyExits(self.crashes + 1, code, self.same + 1 if code == self.code else 1)


@dataclass(frozen=True, slots=True)
class ExitDecision:
    """The pod's new phase; the container restarts after `restart_in` seconds, None if the pod has ended."""

    phase: PodPhase
    reason: str
    restart_in: float | None = None


def after_exit(policy: RestartPolicy, code: int, crashes: int) -> ExitDecision:
    """Decide about a container that exited with `code`; `crashes` counts exits in quick succession, including this."""
    ended = exited(code)
    if policy is RestartPolicy.NEVER or (policy is RestartPolicy.ON_FAILURE and code == 0):
        return ExitDecision(PodPhase.FAILED if code else PodPhase.SUCCEEDED, ended)
    delay = back_off(crashes)
    return ExitDecision(PodPhase.RUNNING, f"{ended}: restartPolicy {policy.value}, restarts in {delay:g} s", delay)


def exited(code: int) -> str:
    """Return the words for an exit code."""
    return f"exited with {code}{_signal(code)}"


def back_off(crashes: int) -> float:
    """Seconds before the next start: 0 before the first, then 1, 2, 4, ... up to a limit."""
    if crashes <= 0:
        return 0.0
    return float(min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** min(crashes - 1, _MAX_DOUBLINGS)))


def _signal(code: int) -> str:
    """The name of the signal that an exit code stands for, in brackets; empty for other codes."""
    number = code - 128
    return f" ({signal.Signals(number).name})" if number in set(signal.Signals) else ""
