"""What one replica's failed pod means: make it again, end the job, or wait for it to go.

The table is training-operator v1's (contract A.10, A.11). Containers that fail inside a living pod are the kubelet's
business (`Always`, `OnFailure`) and never come here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from pytorchjob_operator.model import PyTorchJob, RestartPolicy
from pytorchjob_operator.model.status import MAX_REPLACING
from pytorchjob_operator.observed import Pod, PodPhase
from pytorchjob_operator.plan import replicas
from pytorchjob_operator.plan.replicas import Comparison

FIRST_RETRYABLE = 128
"""Exit codes from here on are signals and retryable errors; 1 to 127 are the program's own (contract A.11)."""


class Decision(StrEnum):
    """What to do about one pod."""

    KEEP = "keep"
    WAIT = "wait"
    REPLACE = "replace"
    END = "end"


@dataclass(frozen=True, slots=True)
class Replacements:
    """The failed pods that are to be made again.

    A pod is counted in the status first and deleted afterwards, so that a crash between the two counts it once. It
    stays listed until it is out of sight, so that one that is still terminating is not counted again.
    """

    pods: tuple[tuple[Pod, str], ...]
    counted: frozenset[str]
    """uids of pods in sight that the stored status counts already."""

    def deletable(self) -> Iterator[tuple[Pod, str]]:
        """Those that the stored status counts already."""
        return ((pod, reason) for pod, reason in self.pods if pod.uid in self.counted)

    def uncounted(self) -> tuple[Pod, ...]:
        """Those that the next status is to count, as far as it has room for them."""
        new = tuple(pod for pod, _ in self.pods if pod.uid not in self.counted)
        return new[: max(MAX_REPLACING - len(self.counted), 0)]

    def used_up(self) -> int:
        """The restarts that these add to the budget: one for each, and those of its containers."""
        return sum(1 + pod.restarts for pod in self.uncounted())

    def uids(self) -> tuple[str, ...]:
        """What the status is to list when it counts them."""
        return tuple(sorted({*self.counted, *(pod.uid for pod in self.uncounted())}))


def replacements(job: PyTorchJob, compared: Comparison, pods: Iterable[Pod]) -> Replacements:
    """Decide about every pod of the job that is there; `pods` are all that are in sight."""
    found = []
    for replica, pod in compared.present.items():
        spec = job.spec.pytorch_replica_specs.get(replica.type)
        assert spec is not None
        decision, reason = decide(replicas.restart_policy(spec), pod)
        if decision is Decision.REPLACE:
            found.append((pod, reason))
    listed = frozenset(job.status.replacing or ())
    return Replacements(tuple(found), listed & {pod.uid for pod in pods})


def decide(policy: RestartPolicy, pod: Pod) -> tuple[Decision, str]:
    """Decide about one pod, with the reason."""
    if not pod.failed:
        return Decision.KEEP, f"{pod.name} has not failed"
    if policy is RestartPolicy.NEVER:
        return Decision.END, f"{pod.name} failed and restartPolicy is Never"
    if pod.deleting:
        return Decision.WAIT, f"{pod.name} is terminating and will be made again"
    assert pod.phase is PodPhase.FAILED
    if policy is RestartPolicy.EXIT_CODE and pod.exit_code is not None and pod.exit_code < FIRST_RETRYABLE:
        return Decision.END, f"{pod.name} exited with {pod.exit_code}, which restartPolicy ExitCode does not retry"
    return Decision.REPLACE, f"{pod.name} failed and restartPolicy is {policy.value}"
