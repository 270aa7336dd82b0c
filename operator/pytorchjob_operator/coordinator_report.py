"""What the coordinator reports about one job: values only, a snapshot; the counterpart of `coordinator_update`.

Pure. `rounds/summary.py` makes the report; `plan/elastic.py` decides what it means for the job's status.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pytorchjob_agent.contract.first_failure import FirstFailure
from pytorchjob_agent.contract.reasons import EndReason, ShrinkState
from pytorchjob_operator.goodput.ledger import Ledger


class PhaseName(StrEnum):
    """The phases of a job's training. `rounds/phases.py` has the data of each phase and the legal transitions."""

    WAITING = "Waiting"
    """No member has joined yet."""
    RENDEZVOUS = "Rendezvous"
    """The coordinator collects members for the next round."""
    RUNNING = "Running"
    """The members of a round train."""
    STALLED = "Stalled"
    """A rendezvous failed. Nothing trains until an agent joins again."""
    ENDED = "Ended"
    """The training has succeeded or failed for good."""


@dataclass(frozen=True, slots=True)
class LastRestart:
    """The latest restart of workers after a failure."""

    age: float
    """Seconds since the restart."""
    reason: str
    message: str
    first: FirstFailure | None = None


@dataclass(frozen=True, slots=True)
class SilentPod:
    """A pod whose agent sends nothing any more, while the coordinator hears other members of the job."""

    uid: str
    seconds: float
    """Since its last message."""


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A rank that needs more time outside collectives than the others, which wait for it."""

    rank: int
    pod: str
    percent: int
    """How much more time it needs than the median of the others."""
    age: float
    """Seconds since it was found."""
    place: str = ""
    """The line of the script at which it works while the others do not. Empty: unknown, or all do the same."""


@dataclass(frozen=True, slots=True)
class TrainingEnd:
    """How the training ended, as the coordinator decided."""

    reason: EndReason
    message: str
    exit_code: int
    """0: all members have succeeded."""
    first: FirstFailure | None = None
    """The failure after which it ended, if one did it."""

    @property
    def failed(self) -> bool:
        """True if the job fails because of it."""
        return self.exit_code != 0


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a job's training."""

    round: str = ""
    """The latest round, as in the agents' logs (3.7). Empty: no round yet."""
    phase: PhaseName = PhaseName.WAITING
    members: int = 0
    """Pods of the latest round."""
    world: int = 0
    """Processes of the latest round. 0: the coordinator does not know all its members yet."""
    restarts: int = 0
    """Restarts after failures so far. A change of members is not a restart."""
    last_restart: LastRestart | None = None
    step: int | None = None
    """Steps done, as reported by the most advanced member, or as its agent observes them. None: unknown."""
    total: int | None = None
    percent: int | None = None
    """How much of the training is done, if the script shows it itself."""
    remaining: int | None = None
    """Seconds until the end, by the script or by its speed in this round. None: unknown."""
    rate: float = 0.0
    """Steps per second. 0: unknown."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics of that same member."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Problems that have not ended the job: one sentence for each reason."""
    ended: TrainingEnd | None = None
    waiting: int = 0
    """Pods that wait for the next round."""
    spares: int = 0
    """Pods that wait while a round runs without them."""
    silent: tuple[SilentPod, ...] = ()
    stragglers: tuple[SlowRank, ...] | None = None
    """The ranks that are slower than the others. None: the round is not measured, or not yet."""
    without: tuple[str, ...] = ()
    """Pods without which the running round goes on."""
    survive: ShrinkState = ShrinkState.OFF
    """READY if the workers would go on without a lost pod, or why not."""
    ledger: Ledger | None = None
    """The job's time by class, up to this report, by the coordinator's clock."""

    @property
    def running(self) -> bool:
        """True if workers of a round run."""
        return self.phase is PhaseName.RUNNING
