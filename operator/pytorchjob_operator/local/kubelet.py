"""What the kubelet decides about one pod when its container ends: start it again in place, or end the pod.

Pure: it starts nothing and reads no clock. Whether an ended pod is made anew is the plan's business.
"""

import signal
from dataclasses import dataclass

from pytorchjob_operator.model import RestartPolicy
from pytorchjob_operator.observed import PodPhase

START_ERROR = 128
"""Exit code of a container whose command could not be started, as container runtimes report it."""

_FIRST_DELAY = 1.0
_LONGEST_DELAY = 30.0
_MAX_DOUBLINGS = 16
_CALM = 60.0
"""A container that ran this long is not in a crash loop: its next back-off starts from the beginning."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The pod's phase from now on; `restart_in` seconds from now, or None if the pod has ended."""

    phase: PodPhase
    reason: str
    restart_in: float | None = None


def after_exit(policy: RestartPolicy, code: int, crashes: int) -> Verdict:
    """Decide about a container that ended with `code`, after so many ends in quick succession (this one included)."""
    ended = f"exited with {code}{_signal(code)}"
    if policy is RestartPolicy.NEVER or (policy is RestartPolicy.ON_FAILURE and code == 0):
        return Verdict(PodPhase.FAILED if code else PodPhase.SUCCEEDED, ended)
    delay = back_off(crashes)
    return Verdict(PodPhase.RUNNING, f"{ended}: restartPolicy {policy.value}, starts again in {delay:g} s", delay)


def back_off(crashes: int) -> float:
    """Seconds before the next start: 1, 2, 4, ... up to a bound; nothing before the first."""
    if crashes <= 0:
        return 0.0
    return float(min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** min(crashes - 1, _MAX_DOUBLINGS)))


def count_crash(crashes: int, ran: float) -> int:
    """How many ends in quick succession there are now, the last one after `ran` seconds."""
    return 1 if ran >= _CALM else crashes + 1


def _signal(code: int) -> str:
    """The name of the signal that an exit code stands for."""
    number = code - 128
    return f" ({signal.Signals(number).name})" if number in set(signal.Signals) else ""
