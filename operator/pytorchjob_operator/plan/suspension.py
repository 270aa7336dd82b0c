"""A suspended job has no pods and no other children, and keeps its history (docs/compatibility.md).

Each change is written to the status first and acted on in the next pass, so that a crash between the two does no harm:
pods are deleted while the condition Suspended is True, and created once it is not. While it is True, every pod is from
before the suspension. Resuming is then an ordinary plan: missing pods are created from the template as it is then.
"""

from collections.abc import Iterator

from pytorchjob_operator.model import ConditionType
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.observed import Observed
from pytorchjob_operator.plan.outcome import JobPhase, Outcome
from pytorchjob_operator.plan.queue import Queueing
from pytorchjob_operator.plan.writes import DeleteChild, DeletePod, Write

_REASON = "the job is suspended"


def decide(seen: Observed, queueing: Queueing) -> Outcome | None:
    """Return the outcome of a job that is suspended, waits in its queue, or has just been resumed; None otherwise."""
    name = seen.job.metadata.name
    if seen.job.spec.run_policy.suspend:
        return Outcome(JobPhase.SUSPENDED, f"PyTorchJob {name} is suspended.")
    if queueing.stops:
        return Outcome(JobPhase.QUEUED, f"PyTorchJob {name} waits in its queue.")
    if any(writes(seen)):
        return Outcome(JobPhase.QUEUED if queueing.parts else JobPhase.SUSPENDED, f"PyTorchJob {name} is suspended.")
    if seen.job.status.holds(ConditionType.SUSPENDED):
        return Outcome(JobPhase.RESUMED, f"PyTorchJob {name} is resumed.")
    return None


def writes(seen: Observed) -> Iterator[Write]:
    """Yield the deletion of all children once the status is Suspended, resumed or not; cleanPodPolicy has no effect."""
    if not seen.job.status.holds(ConditionType.SUSPENDED):
        return
    for pod in seen.pods:
        if not pod.deleting:
            yield DeletePod(pod.name, pod.uid, _REASON)
    for child in seen.children:
        if not child.deleting and child.kind is not ChildKind.WORKLOAD:  # it goes once the pods are gone: `queue`
            yield DeleteChild(child.kind, child.name, child.uid)
