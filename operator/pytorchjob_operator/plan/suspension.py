"""A suspended job has no pods and no other children, and keeps its history (contract A.12).

Each change of state is written first and acted on with the next look, so that a crash between the two is no riddle:
pods go once the status says Suspended, and come once it no longer does. While it does, every pod is of the life before.
Resuming is then an ordinary plan: what is missing is made, from the template as it is by then.
"""

from collections.abc import Iterator

from pytorchjob_operator.model import ConditionType
from pytorchjob_operator.observed import Observed
from pytorchjob_operator.plan.outcome import Outcome, Phase
from pytorchjob_operator.plan.writes import DeleteChild, DeletePod, Write

_REASON = "the job is suspended"


def decide(seen: Observed) -> Outcome | None:
    """Whether the job holds nothing now, as the user or Kueue wants it, or has just been resumed; None: neither."""
    name = seen.job.metadata.name
    if seen.job.spec.run_policy.suspend or any(writes(seen)):
        return Outcome(Phase.SUSPENDED, f"PyTorchJob {name} is suspended.")
    if seen.job.status.holds(ConditionType.SUSPENDED):
        return Outcome(Phase.RESUMED, f"PyTorchJob {name} is resumed.")
    return None


def writes(seen: Observed) -> Iterator[Write]:
    """Delete whatever the job has once the status says so, resumed or not; cleanPodPolicy does not matter here."""
    if not seen.job.status.holds(ConditionType.SUSPENDED):
        return
    for pod in seen.pods:
        if not pod.deleting:
            yield DeletePod(pod.name, pod.uid, _REASON)
    for child in seen.children:
        if not child.deleting:
            yield DeleteChild(child.kind, child.name, child.uid)
