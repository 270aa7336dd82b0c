"""What to do about a failed pod: replace it, end the job, or wait until the pod is gone.

The table is training-operator v1's (docs/compatibility.md). It decides about pods only. The kubelet restarts containers
inside a running pod (`Always`, `OnFailure`), and `rounds/budget` decides about failed training processes. One row is
new: a pod whose agent found its node unfit is replaced, because the kubelet would restart it on the same node.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from pytorchjob_operator.model import PyTorchJob, RestartPolicy
from pytorchjob_operator.model.status import MAX_REPLACING
from pytorchjob_operator.observed import Pod, PodPhase
from pytorchjob_operator.plan import replicas
from pytorchjob_operator.plan.replicas import ReplicaComparison

FIRST_RETRYABLE = 128
"""Exit codes from here on are signals and retryable errors; 1 to 127 are the program's own (docs/compatibility.md)."""
UNFIT_PODS = 3
"""The job ends when this many pods of a replica in a row were unfit (`plan/hopeless`); earlier ones are replaced."""


class PodAction(StrEnum):
    """What to do about one pod."""

    KEEP = "keep"
    WAIT = "wait"
    REPLACE = "replace"
    END = "end"


@dataclass(frozen=True, slots=True)
class Replacements:
    """The failed pods that are replaced.

    The status counts a pod first and the operator deletes it afterwards, so that a crash between the two counts it
    once. It stays listed until it is gone, so that a pod that is still terminating is not counted again.
    """

    pods: tuple[tuple[Pod, str], ...]
    counted: frozenset[str]
    """uids of existing pods that the stored status counts already."""

    def deletable(self) -> Iterator[tuple[Pod, str]]:
        """Return the pods that the stored status counts already."""
        return ((pod, reason) for pod, reason in self.pods if pod.uid in self.counted)

    def uncounted(self) -> tuple[Pod, ...]:
        """Return the pods that the next status counts, as many as it has room for."""
        new = tuple(pod for pod, _ in self.pods if pod.uid not in self.counted)
        return new[: max(MAX_REPLACING - len(self.counted), 0)]

    def used_up(self) -> int:
        """Return the restarts that these add to the budget: one for each pod, plus its containers' restarts."""
        return sum(1 + pod.restarts for pod in self.uncounted())

    def uids(self) -> tuple[str, ...]:
        """Return the uids that the status lists when it counts these pods."""
        return tuple(sorted({*self.counted, *(pod.uid for pod in self.uncounted())}))


def replacements(
    job: PyTorchJob, compared: ReplicaComparison, pods: Iterable[Pod], silent: Iterable[tuple[Pod, str]] = ()
) -> Replacements:
    """Decide about every pod that is present; `pods` are all existing pods of the job, `silent` have frozen agents."""
    found = [*silent]
    for replica, pod in compared.present.items():
        spec = job.spec.pytorch_replica_specs.get(replica.type)
        assert spec is not None
        decision, reason = decide(replicas.restart_policy(spec), pod)
        if decision is PodAction.REPLACE:
            found.append((pod, reason))
        elif decision is PodAction.KEEP and _may_fit_elsewhere(job, pod):
            found.append((pod, f"the agent found it unfit for the job{f' on node {pod.node}' if pod.node else ''}"))
    listed = frozenset(job.status.replacing or ())
    return Replacements(tuple(found), listed & {pod.uid for pod in pods})


def _may_fit_elsewhere(job: PyTorchJob, pod: Pod) -> bool:
    """Whether the agent found the pod unfit, and fewer than all attempts have been made."""
    unfit = pod.crash is not None and pod.crash.unfit
    others = [known for known in job.status.unfit_pods or () if known.name == pod.name and known.uid != pod.uid]
    return unfit and pod.active and len(others) < UNFIT_PODS - 1


def decide(policy: RestartPolicy, pod: Pod) -> tuple[PodAction, str]:
    """Decide about one pod, with the reason."""
    if not pod.failed:
        return PodAction.KEEP, f"{pod.name} has not failed"
    if policy is RestartPolicy.NEVER:
        return PodAction.END, f"{pod.name} failed and restartPolicy is Never"
    if pod.deleting:
        return PodAction.WAIT, f"{pod.name} is terminating and will be replaced"
    assert pod.phase is PodPhase.FAILED
    if policy is RestartPolicy.EXIT_CODE and pod.exit_code is not None and pod.exit_code < FIRST_RETRYABLE:
        return PodAction.END, f"{pod.name} exited with {pod.exit_code}, which restartPolicy ExitCode does not retry"
    return PodAction.REPLACE, f"{pod.name} failed and restartPolicy is {policy.value}"
