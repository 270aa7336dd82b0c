"""The phases of a job's training, and the table of legal transitions between them. Pure.

A job is in one phase, and a phase holds only its own data. `LEGAL` is the whole machine: a transition that is not in
the table raises an error. docs/rounds.md shows the diagram that `diagram` makes from the table.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum, auto
from typing import assert_never

from pytorchjob_operator.coordinator_report import PhaseName
from pytorchjob_operator.rounds.values import End, Failure, Member, PlannedRestart, Round


@dataclass(frozen=True, slots=True)
class Waiting:
    """No member has joined, and no round is known."""


class Origin(IntEnum):
    """What ended a round. It decides whether the failures of its workers count; a greater value stays."""

    FAILURE = 0
    """The failures of its workers, if there are any."""
    MAYBE_LOSS = 1
    """A member was lost, or knows another reason: failures that may follow from a loss do not count."""
    OTHER = 2
    """Another reason, before any worker failed: no failure counts."""


class Stage(Enum):
    """Where a rendezvous is."""

    STOPPING = auto()
    """The members of the last round stop their workers, and report how these ended."""
    COLLECTING = auto()
    """The end of the last round, if there was one, is in the history, and its failures are in the budget."""


class LastWorkers(IntEnum):
    """What is known of the workers of the last round; a greater value stays."""

    MAY_TRAIN = 0
    STOPPED = 1
    """A member has no workers any more: then no other member can finish a step."""
    STOPPED_LONG_AGO = 2
    """So said the members without workers from which alone this coordinator knows the round: others may train a later
    one.
    """


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The coordinator collects members for the next round."""

    since: float
    reason: str
    """Why this rendezvous began. Members receive it with their assignment."""
    last_round: Round | None = None
    failures: tuple[Failure, ...] = ()
    not_before: float = 0.0
    """The next round does not start before this time: the pause after quick failures."""
    origin: Origin = Origin.FAILURE
    """What ended the last round, as far as it is known."""
    stage: Stage = Stage.STOPPING
    workers: LastWorkers = LastWorkers.MAY_TRAIN
    grace: float = 0.0
    """Seconds in which the workers of the last round may end after SIGTERM. 0: they are killed."""
    reported_at: float | None = None
    """When the coordinator last sent the waiting members the reason for waiting."""

    @property
    def first(self) -> bool:
        """True if no round is known."""
        return self.last_round is None

    @property
    def unsure(self) -> bool:
        """True if members that have not connected yet may train a round that this coordinator does not know."""
        return self.first or self.workers is LastWorkers.STOPPED_LONG_AGO


@dataclass(frozen=True, slots=True)
class Running:
    """The members of a round train."""

    round: Round
    planned: PlannedRestart | None = None
    growing_since: float | None = None
    """Since when a member waits that the round has room for."""
    gathered_at: float | None = None
    """When no other member was waited for any more: from then on a save counts."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """A rendezvous timed out, or the coordinator found a defect of its own. Nothing is formed until an agent joins."""

    since: float
    message: str
    last_round: Round | None = None
    workers: LastWorkers = LastWorkers.MAY_TRAIN


@dataclass(frozen=True, slots=True)
class Ended:
    """The training is over. Agents that come back learn how it ended."""

    end: End
    last_round: Round | None = None
    front: Member | None = None
    """The most advanced member at the end: its progress is shown although its connection ends."""


Phase = Waiting | Rendezvous | Running | Stalled | Ended


class Trigger(StrEnum):
    """What moves a job from one phase to another."""

    MEMBER_JOINED = "a member joins"
    ROUND_FORMED = "enough members wait"
    ROUND_REPORTED = "a member reports a later round"
    ROUND_OVER = "a member reports a round that is over"
    WORKERS_FAILED = "workers fail"
    WORKERS_STOPPED = "a member has no workers"
    MEMBER_LOST = "a member is lost"
    MEMBERS_CHANGE = "members come or go"
    TIMED_OUT = "the join timeout is over"
    SUCCEEDED = "all members have succeeded"
    GAVE_UP = "the policy allows no other round"
    MEMBER_LEFT = "the others go on without a lost member"
    MEMBER_CAME_BACK = "the others have taken a lost member in"
    DEFECT = "an invariant is violated"


_W, _V, _R, _S, _E = (
    PhaseName.WAITING,
    PhaseName.RENDEZVOUS,
    PhaseName.RUNNING,
    PhaseName.STALLED,
    PhaseName.ENDED,
)

LEGAL: dict[tuple[PhaseName, Trigger], PhaseName] = {
    (_W, Trigger.MEMBER_JOINED): _V,
    (_W, Trigger.ROUND_REPORTED): _R,
    (_W, Trigger.ROUND_OVER): _V,
    (_W, Trigger.DEFECT): _S,
    (_V, Trigger.ROUND_FORMED): _R,
    (_V, Trigger.ROUND_REPORTED): _R,
    (_V, Trigger.TIMED_OUT): _S,
    (_V, Trigger.DEFECT): _S,
    (_V, Trigger.SUCCEEDED): _E,
    (_V, Trigger.GAVE_UP): _E,
    (_R, Trigger.ROUND_REPORTED): _R,
    (_R, Trigger.MEMBER_LEFT): _R,
    (_R, Trigger.MEMBER_CAME_BACK): _R,
    (_R, Trigger.WORKERS_FAILED): _V,
    (_R, Trigger.WORKERS_STOPPED): _V,
    (_R, Trigger.MEMBER_LOST): _V,
    (_R, Trigger.MEMBERS_CHANGE): _V,
    (_R, Trigger.DEFECT): _S,
    (_R, Trigger.SUCCEEDED): _E,
    (_S, Trigger.MEMBER_JOINED): _V,
    (_S, Trigger.ROUND_REPORTED): _R,
    (_S, Trigger.DEFECT): _S,
}
"""The machine. Ended has no transition: an end is final."""


class IllegalTransitionError(Exception):
    """A transition that the table does not have: a defect of the coordinator."""


def name_of(phase: Phase) -> PhaseName:
    """Return the name of a phase."""
    match phase:
        case Waiting():
            return PhaseName.WAITING
        case Rendezvous():
            return PhaseName.RENDEZVOUS
        case Running():
            return PhaseName.RUNNING
        case Stalled():
            return PhaseName.STALLED
        case Ended():
            return PhaseName.ENDED
    assert_never(phase)


def known_round(phase: Phase) -> Round | None:
    """Return the running round, or else the last one."""
    match phase:
        case Waiting():
            return None
        case Running(round=round_):
            return round_
        case Rendezvous(last_round=round_) | Stalled(last_round=round_) | Ended(last_round=round_):
            return round_
    assert_never(phase)


def check_transition(before: Phase, trigger: Trigger, after: Phase) -> None:
    """Raise IllegalTransitionError unless the table has this transition."""
    wanted = LEGAL.get((name_of(before), trigger))
    if wanted is not name_of(after):
        expected = f"expected {wanted}" if wanted else "the table has no such transition"
        raise IllegalTransitionError(f"{name_of(before)} -> {name_of(after)} by {trigger.name}: {expected}")
