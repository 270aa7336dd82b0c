"""What a plan decides for the coordinator of one job: values only, the counterpart of `report`.

Each pass over a job decides one update (`plan/coordinator.py`). The cluster and the local runner hand it to the
coordinator and decide nothing themselves. Every update is complete: repeating it changes nothing, and the next pass
replaces an update that was lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytorchjob_operator.goodput.ledger import JobStage, Ledger
from pytorchjob_operator.rounds.values import ExpectedPod, Policy


@dataclass(frozen=True, slots=True)
class Sync:
    """The job trains with the coordinator, by this policy and with these pods."""

    policy: Policy
    pods: Mapping[int, ExpectedPod]
    """The expected pods, by the replica's position in the job: the Master first, then the workers."""
    name: str = ""
    """The job's name, for messages."""
    namespace: str = ""
    """The job's namespace: the jobs of one namespace share a part of the coordinator."""
    restarts: int = 0
    """Restarts after failures so far, as the job's status has them: a new coordinator does not begin at 0."""
    terminating: Mapping[int, str] = field(default_factory=dict)
    """The uids of pods that are not expected any more and whose processes may still run, by position as `pods`."""
    trained: bool = False
    """True if the job's status names a round: an agent that has not connected yet may train."""
    stage: JobStage = JobStage.UNKNOWN
    """What the job does, by its pods alone."""
    ledger: Ledger | None = field(default=None, compare=False)
    """The job's time by class, up to this pass. It changes with each pass, so it makes no update a new one."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The job has ended while pods of it still run: the coordinator stops their agents."""

    failed: bool


@dataclass(frozen=True, slots=True)
class Forget:
    """The coordinator has nothing to do for the job: it drops what it knows and sends the agents away."""


CoordinatorUpdate = Sync | Finish | Forget
