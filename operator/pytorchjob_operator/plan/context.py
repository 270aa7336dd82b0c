"""The context of one pass over a job: the observation, and what the first policies derived from it for the others."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pytorchjob_operator.goodput.ledger import JobStage, Ledger
from pytorchjob_operator.model import PyTorchJob, UnfitPod
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.observed import Observed, Pod
from pytorchjob_operator.plan.outcome import Counts
from pytorchjob_operator.plan.queue import Queueing
from pytorchjob_operator.plan.replicas import Replica, ReplicaComparison
from pytorchjob_operator.plan.restart import Replacements
from pytorchjob_operator.plan.silent_pods import Silence
from pytorchjob_operator.plan.writes import AgentUse
from pytorchjob_operator.problem import Crash


@dataclass(frozen=True, slots=True)
class Reserves:
    """What follows for the reserve pods of a job."""

    threatened: tuple[tuple[Replica, Pod, str], ...] = ()
    """The pods that get a reserve pod now, with the reason."""
    surplus: tuple[tuple[Pod, str], ...] = ()
    """The reserve pods to delete, with the reason."""
    held: Mapping[Replica, datetime] = field(default_factory=dict)
    """The missing replicas whose reserve pods still keep their places, with the time until which they wait for that."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """The node that the next pod of a missing replica prefers, by the pod's name."""
    next_try: datetime | None = None
    """When a reserve pod that was refused may be created again."""


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """Whether a job's pods get the agent."""

    job: PyTorchJob
    """As the other policies see it: with `spec.agent.inject` if its pods get the agent."""
    use: AgentUse
    asks: bool = False
    """The choice needs the job's namespace, which has not been read."""


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that a policy may need. `job` has its defaults; `seen.job` is as the user wrote it."""

    seen: Observed
    job: PyTorchJob
    compared: ReplicaComparison
    counts: dict[ReplicaType, Counts]
    silence: Silence
    replacements: Replacements
    crashed: tuple[tuple[Pod, Crash], ...]
    """The wanted pods whose container ended soon after its start, in the order of ranks."""
    unfit: tuple[UnfitPod, ...]
    """The pods that were unfit since all replicas last trained together, the newest last."""
    postponed: dict[Replica, datetime]
    """The missing replicas whose pods were deleted right after their creation, with the time of the next creation."""
    reserves: Reserves
    roles: frozenset[ReplicaType]
    """The roles whose pods train with the coordinator."""
    stage: JobStage
    """What the job does, by its pods alone."""
    ledger: Ledger
    """The job's time by class, up to this pass."""
    agent: AgentChoice
    queueing: Queueing = field(default_factory=Queueing)

    @property
    def creatable(self) -> list[Replica]:
        """The missing replicas whose pods may be created now."""
        return [
            replica
            for replica in self.compared.missing
            if replica not in self.postponed and replica not in self.reserves.held and not self.queueing.asks
        ]
