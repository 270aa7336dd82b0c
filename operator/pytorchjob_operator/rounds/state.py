"""The state of one job, the inputs that change it, and what a decision consists of. Values only."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pytorchjob_agent.contract.first_failure import FirstFailure
from pytorchjob_agent.contract.messages import FromAgent, RoundId, ToAgent
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.rounds.phases import Ended, Phase, Trigger, Waiting, known_round
from pytorchjob_operator.rounds.slow_ranks import RoundTimes
from pytorchjob_operator.rounds.values import (
    ExpectedPod,
    Member,
    PastRestart,
    Policy,
    Round,
    SavePace,
    SaveRequest,
    SilentAgent,
    Threat,
)


@dataclass(frozen=True, slots=True)
class JobState:
    """Everything that the coordinator knows about one job."""

    policy: Policy
    term: int
    """The term of the operator's leader."""
    phase: Phase = field(default_factory=Waiting)
    pods: Mapping[int, ExpectedPod] = field(default_factory=dict)
    """The expected pods, by index."""
    terminating: Mapping[int, str] = field(default_factory=dict)
    """The uids of pods that are not expected any more and whose processes may still run, by index."""
    trained: bool = False
    """True if the job's status names a round: a former leader may have formed it."""
    members: Mapping[int, Member] = field(default_factory=dict)
    """The agents that have sent a hello, by index."""
    next_number: int = 1
    """The number of the next round in this term."""
    finished_round: RoundId | None = None
    """Highest finished round that a waiting agent reported, or that was known before a suspension. Agents ignore
    assignments up to that id."""
    requests: int = 0
    """Checkpoint requests so far."""
    restarts: int = 0
    """Restarts after failures so far. Restarts after a change of members do not count."""
    history: tuple[PastRestart, ...] = ()
    checked_at: float = 0.0
    """When `decide` last handled an input of this job."""
    refused_at: float | None = None
    """When an agent last failed to authenticate as a pod of this job."""
    duplicate_at: float | None = None
    """When an agent was last refused because another one serves its replica."""
    former_uids: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The uids of a replica's last few former pods."""
    silent: Mapping[int, SilentAgent] = field(default_factory=dict)
    """Agents that were lost by their silence and have not come back, by index: their pods may be frozen."""
    problems: Mapping[TrainingReason, str] = field(default_factory=dict)
    """Problems that have not ended the job."""
    threatened: frozenset[Threat] = frozenset()
    """Pods that may be lost soon, and why. Each has been reported."""
    unsaved: frozenset[Threat] = frozenset()
    """Those of them for which the workers have not been asked to save."""
    save: SaveRequest | None = None
    """The request to save that the workers have not answered yet."""
    save_requested_at: float | None = None
    """When the workers were last asked to save while training continues."""
    save_pace: SavePace | None = None
    """How the script saves by itself. None: no such save was seen."""
    round_cost: float = 0.0
    """Seconds from the start of a round until its members showed progress, as last measured. 0: unknown."""
    own_times: RoundTimes = field(default_factory=RoundTimes)
    """What the workers spend outside collectives, in one round."""

    @property
    def round(self) -> Round | None:
        """The running round, or else the last one."""
        return known_round(self.phase)

    @property
    def last_round(self) -> RoundId | None:
        """The latest round that is known, whether it runs or is over."""
        known = [id_ for id_ in (self.round and self.round.id, self.finished_round) if id_]
        return max(known, default=None)

    @property
    def front(self) -> Member | None:
        """The member that is the furthest, or was at the end; steps count most, then percentages, then metrics."""
        if isinstance(self.phase, Ended) and self.phase.front is not None:
            return self.phase.front
        return max((member for member in self.members.values() if member.shows_progress), key=_position, default=None)

    def pod_name(self, index: int) -> str:
        """Return the pod of a replica, for messages: its agent may have gone."""
        member, pod = self.members.get(index), self.pods.get(index)
        return member.pod if member else pod.pod if pod else f"replica {index}"

    def in_round(self, *, last_first: bool = False) -> Iterator[Member]:
        """Yield the known members of the present or last round, by rank."""
        ranks = () if self.round is None else self.round.present
        for index in reversed(ranks) if last_first else ranks:
            member = None if index is None else self.members.get(index)
            if member is not None:
                yield member


def _position(member: Member) -> tuple[int, int, int]:
    step, percent = member.known_step, member.shown.percent
    return (-1 if step is None else step, -1 if percent is None else percent, -member.index)


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """An agent sent a message. `index` is None for its hello."""

    connection: int
    index: int | None
    message: FromAgent


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A connection ended."""

    connection: int
    index: int


@dataclass(frozen=True, slots=True)
class JobSynced:
    """The operator reports what the job is now."""

    policy: Policy
    pods: Mapping[int, ExpectedPod]
    restarts: int = 0
    """Restarts after failures so far, as the job's status has them."""
    terminating: Mapping[int, str] = field(default_factory=dict)
    """The uids of pods that are not expected any more and whose processes may still run, by index."""
    trained: bool = False
    """True if the job's status names a round."""


@dataclass(frozen=True, slots=True)
class AuthenticationFailed:
    """An agent claimed to be a pod of this job and could not prove it, or there was no room for it."""

    message: str
    reason: TrainingReason = TrainingReason.AGENT_REFUSED


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


Input = MessageReceived | ConnectionClosed | JobSynced | AuthenticationFailed | Tick


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message on a connection."""

    connection: int
    message: ToAgent


@dataclass(frozen=True, slots=True)
class Close:
    """Close a connection after its messages are sent."""

    connection: int


Command = Send | Close


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A Kubernetes event of the job."""

    reason: TrainingReason
    message: str
    warning: bool = False
    first: FirstFailure | None = None
    """Of an event about a failure."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The next state, the commands for agents, the events for people, and the reason in one sentence."""

    state: JobState
    commands: tuple[Command, ...]
    events: tuple[JobEvent, ...]
    reason: str
    triggers: tuple[Trigger, ...] = ()
    """What has moved the job to another phase, in this order."""
