"""What one replica's failed pod means: make it again, end the job, or wait for it to go.

The table is training-operator v1's (contract A.10, A.11). Containers that fail inside a living pod are the kubelet's
business (`Always`, `OnFailure`) and never come here.
"""

from enum import StrEnum

from pytorchjob_operator.model import RestartPolicy
from pytorchjob_operator.observed import Pod, PodPhase

_FIRST_RETRYABLE = 128
"""Exit codes from here on are signals and retryable errors; 1 to 127 are the program's own (contract A.11)."""


class Decision(StrEnum):
    """What to do about one pod."""

    KEEP = "keep"
    WAIT = "wait"
    REPLACE = "replace"
    END = "end"


def decide(policy: RestartPolicy, pod: Pod) -> tuple[Decision, str]:
    """Decide about one pod, with the reason."""
    if not pod.failed:
        return Decision.KEEP, f"{pod.name} has not failed"
    if policy is RestartPolicy.NEVER:
        return Decision.END, f"{pod.name} failed and restartPolicy is Never"
    if pod.deleting:
        return Decision.WAIT, f"{pod.name} is terminating and will be made again"
    assert pod.phase is PodPhase.FAILED
    if policy is RestartPolicy.EXIT_CODE and pod.exit_code is not None and pod.exit_code < _FIRST_RETRYABLE:
        return Decision.END, f"{pod.name} exited with {pod.exit_code}, which restartPolicy ExitCode does not retry"
    return Decision.REPLACE, f"{pod.name} failed and restartPolicy is {policy.value}"
