"""A suspended job has no pods and no Service, and keeps its history (contract A.12).

Resuming is an ordinary plan: what is missing is made, from the template as it is then.
"""

from collections.abc import Iterator

from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.observed import Observed
from pytorchjob_operator.plan.writes import DeletePod, DeleteService, Write

_REASON = "the job is suspended"


def wanted(job: PyTorchJob) -> bool:
    """Whether the user, or Kueue, wants the job to hold nothing now."""
    return job.spec.run_policy.suspend


def writes(seen: Observed) -> Iterator[Write]:
    """Delete whatever the job has; cleanPodPolicy does not matter here."""
    for pod in seen.pods:
        if not pod.deleting:
            yield DeletePod(pod.name, pod.uid, _REASON)
    for service in seen.services:
        if not service.deleting:
            yield DeleteService(service.name, service.uid)
