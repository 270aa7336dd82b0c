"""What the coordinator knows of one job, what may happen to it, and what it may order. Values only.

Times are seconds of one monotonic clock; an index is the place of a replica in the job (Master first, then workers), a
rank is its place in a round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pytorchjob_agent.contract.messages import FromAgent, RoundId, ToAgent


class Word(StrEnum):
    """Reasons of the events and problems that rounds bring."""

    ROUND = "RoundStarted"
    FAILED = "WorkerFailed"
    HANG = "WorkersHang"
    REGROUPING = "Regrouping"
    GAVE_UP = "ElasticGaveUp"
    WAITING = "RendezvousWaiting"
    VERSIONS = "UnequalVersions"
    CLOCKS = "ClocksDiffer"
    UNREACHABLE = "PeerUnreachable"
    CUT_OFF = "CoordinatorUnreachable"
    DOUBLE = "DuplicateReplica"
    REFUSED = "AgentRefused"


@dataclass(frozen=True, slots=True)
class Policy:
    """How many members make a round, and how often their workers may fail."""

    least: int
    most: int
    restarts: int | None = None
    """Failures after which workers are started again; None: as many as it takes, while there is progress."""
    window: float | None = None
    """Only failures of the last so many seconds count; None: all of them."""
    retry_from: int = 0
    """Exit codes from 1 to below this one end the job (restartPolicy ExitCode); 0: none does."""
    last_call: float = 30.0
    """How long the first round of an elastic job waits for replicas that are still to come."""
    grace: float = 1.0
    """How long a later round waits for members that were here and are not, once there are enough."""
    timeout: float = 600.0
    """How long a round may take to come about."""

    @property
    def elastic(self) -> bool:
        """Whether a round may be smaller than the job."""
        return self.least < self.most


@dataclass(frozen=True, slots=True)
class Seat:
    """A replica that the job has now, by its pod."""

    pod: str
    pod_uid: str = ""
    """Empty where pods have none."""
    trouble: str = ""
    """Why the pod does not run, if so: nobody waits for it once there are enough."""
    done: bool = False
    """Whether the pod has succeeded."""


@dataclass(frozen=True, slots=True)
class Member:
    """An agent that has said hello."""

    index: int
    pod: str
    pod_uid: str
    incarnation: str
    link: int | None
    """Its connection; None while it has none."""
    address: str
    nproc: int
    heard: float
    """When it last said something."""
    ponged: float | None = None
    """When a beat was last answered on this connection."""
    port: int | None = None
    """Where its store listens; None unless it waits for a round."""
    lost: float | None = None
    """Since when it has no connection, or has been silent."""
    echo: float | None = None
    """When a peer last heard it."""
    leaving: bool = False
    done: bool = False
    cooperative: bool = False
    answered: int = 0
    step: int | None = None
    total: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str | None] = field(default_factory=dict)
    warns: bool = True
    offset: float | None = None
    """Its wall clock less our clock, in seconds, at its last hello: comparable among members alone; None: not told."""

    @property
    def waiting(self) -> bool:
        """Whether it can be put into a round now."""
        return self.link is not None and self.port is not None and not self.leaving


@dataclass(frozen=True, slots=True)
class Round:
    """A group of members that train together."""

    id: RoundId
    ranks: tuple[int | None, ...]
    """The member's index by rank; None for one that the coordinator has not met yet."""
    since: float
    world: int = 0
    first_step: int | None = None
    """The first step that was seen of it."""
    adopted: bool = False
    """Whether it was opened by another leader, or by the members themselves."""
    pods: Mapping[int, str] = field(default_factory=dict)
    """The uid of the pod that a replica had when it came in, as far as pods have one."""
    done: frozenset[int] = frozenset()
    """The replicas whose workers ended well in this round, whatever became of their pods."""

    def has(self, index: int) -> bool:
        """Whether the replica takes part."""
        return index in self.ranks


@dataclass(frozen=True, slots=True)
class Failure:
    """Workers of one member that failed, as it told."""

    index: int
    rank: int
    exit_code: int
    message: str
    traceback: str
    at: float
    """When they failed, by the coordinator's clock."""
    also: tuple[int, ...] = ()
    hang: bool = False
    waits: bool = False
    """Of a hang: whether it waits for another rank."""


@dataclass(frozen=True, slots=True)
class Gathering:
    """The time between two rounds."""

    since: float
    reason: str
    failures: tuple[Failure, ...] = ()
    not_before: float = 0.0
    first: bool = False
    caused: bool = False
    """Whether the round ended for a known reason before anything failed: what fails after it is its echo."""
    lost: bool = False
    """Whether a member of the round was lost: failures that sound like an echo are one."""
    stopped: bool = False
    """Whether a member of the round has no workers any more: then the others can do no step either."""
    counted: bool = False
    """Whether the failures are in the budget already."""
    told: float | None = None
    """When the members were last told what they wait for."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A restart that was announced to the workers, so that they save first."""

    reason: str
    deadline: float
    number: int


@dataclass(frozen=True, slots=True)
class PastRestart:
    """One restart, for the budget and for people."""

    at: float
    reason: str
    message: str
    counted: bool
    signature: str = ""
    """What tells one error from another."""
    step: int | None = None
    """The furthest step that the round before it reached; None: unknown."""


class EndReason(StrEnum):
    """Why the coordinator ended a job."""

    SUCCEEDED = "Succeeded"
    BUDGET = "RestartsUsedUp"
    SAME_ERROR = "SameErrorAgain"
    NO_PROGRESS = "NoProgress"
    PERMANENT = "PermanentError"
    TIMEOUT = "RendezvousTimeout"
    VERSIONS = "UnequalVersions"


@dataclass(frozen=True, slots=True)
class End:
    """The job's end; nobody joins any more."""

    reason: EndReason
    message: str
    exit_code: int
    at: float


@dataclass(frozen=True, slots=True)
class JobState:
    """Everything about one job."""

    policy: Policy
    term: int
    seats: Mapping[int, Seat] = field(default_factory=dict)
    members: Mapping[int, Member] = field(default_factory=dict)
    round: Round | None = None
    gathering: Gathering | None = None
    planned: Planned | None = None
    growing: float | None = None
    """Since when somebody waits who could make the running round larger."""
    next_number: int = 1
    over: RoundId | None = None
    """The latest round that anybody who waits knows to be over: an agent begins none up to its own."""
    requests: int = 0
    """Checkpoint requests so far."""
    restarts: int = 0
    """Restarts after failures; those after a change of members do not count."""
    history: tuple[PastRestart, ...] = ()
    end: End | None = None
    looked: float = 0.0
    """When `decide` last looked at this job."""
    turned_away: float | None = None
    """When somebody was last turned away who called itself one of this job's pods."""
    former: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The uids of the pods that a replica had before, the last few."""
    doubled: float | None = None
    """When an agent was last refused because another one stands for its replica."""
    problems: Mapping[Word, str] = field(default_factory=dict)
    """What is wrong without having ended the job, by its reason."""


@dataclass(frozen=True, slots=True)
class Said:
    """An agent said something; `index` is None for its hello."""

    link: int
    index: int | None
    message: FromAgent


@dataclass(frozen=True, slots=True)
class Closed:
    """A connection ended."""

    link: int
    index: int


@dataclass(frozen=True, slots=True)
class Expect:
    """The operator says what the job is now."""

    policy: Policy
    seats: Mapping[int, Seat]


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """Somebody called itself a pod of this job and could not prove it."""

    message: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by."""


Event = Said | Closed | Expect | TurnedAway | Tick


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a message on a connection."""

    link: int
    message: ToAgent


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close a connection, once what was told is out."""

    link: int


Order = Tell | Hangup


@dataclass(frozen=True, slots=True)
class News:
    """Something that people want to hear of, once."""

    reason: Word
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The next state, what to send, what to tell people, and why."""

    state: JobState
    orders: tuple[Order, ...]
    news: tuple[News, ...]
    reason: str
