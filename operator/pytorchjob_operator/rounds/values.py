"""The values that describe a job's members and rounds. Pure data; `phases` and `state` put them together.

Times are seconds of one monotonic clock. An index is the position of a replica in the job (Master first, then Workers).
`Round.ranks` are node ranks: a member's position in its round. `Failure.rank` is the rank of a worker process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pytorchjob_agent.contract.collectives import GroupPosition
from pytorchjob_agent.contract.fields import RoundId
from pytorchjob_agent.contract.first_failure import FirstFailure
from pytorchjob_agent.contract.reasons import EndReason, TrainingReason
from pytorchjob_agent.contract.root_cause import CHILD_FAILED, Evidence


@dataclass(frozen=True, slots=True)
class Policy:
    """How many members form a round, and how often workers may fail."""

    min_members: int
    max_members: int
    max_restarts: int | None = None
    """Restarts after failures before the job fails. None: no limit while training makes progress."""
    restart_window: float | None = None
    """Only failures within this many seconds count. None: all of them count."""
    first_retryable_exit_code: int = 0
    """Exit codes from 1 to below this one end the job (restartPolicy ExitCode). 0: no exit code does."""
    early_errors: int = 5
    """The same error this many times in a row, each in a short round, ends the job if its workers report no steps."""
    last_call_timeout: float = 30.0
    """Seconds for which the first rendezvous of an elastic job waits for more members than the minimum."""
    rejoin_timeout: float = 1.0
    """Seconds for which a later rendezvous with enough members waits for members of the last round."""
    join_timeout: float = 600.0
    """Seconds after which a rendezvous fails."""
    survive: bool = False
    """True if a round goes on without a lost member where that is known to be right."""
    rejoin_within: float = 600.0
    """Seconds for which a member that could join a smaller round waits for its next save at most."""

    @property
    def elastic(self) -> bool:
        """True if a round may be smaller than the job."""
        return self.min_members < self.max_members


@dataclass(frozen=True, slots=True)
class ExpectedPod:
    """A pod that the job has now, by the operator's latest plan."""

    pod: str
    pod_uid: str = ""
    """Empty where pods have no uid (local runs)."""
    problem: str = ""
    """Why the pod does not run. A rendezvous with enough members does not wait for it."""
    succeeded: bool = False
    threat: str = ""
    """Why it may be lost soon, with its node: a clause without a subject. Empty: nothing is known."""
    zone: str = ""
    """The zone of its node. Empty: unknown."""


class Threat(NamedTuple):
    """A pod that may be lost soon."""

    pod: str
    uid: str
    reason: str
    """As in `ExpectedPod.threat`."""


@dataclass(frozen=True, slots=True)
class ShownProgress:
    """What only people see of a member's progress; see the fields of `Heartbeat`."""

    step: int | None = None
    """Steps as the agent observes them, of a script that does not report any."""
    total: int | None = None
    percent: int | None = None
    remaining: int | None = None
    """Seconds."""
    rate: float = 0.0
    """Steps per second. 0: unknown."""


class SavePace(NamedTuple):
    """How a script saves by itself, as its workers measure it."""

    at: float
    """When the last save was seen."""
    interval: float
    """Seconds between the save before it, or the start of the round, and that one."""


@dataclass(frozen=True, slots=True)
class Member:
    """An agent that has sent a hello."""

    index: int
    pod: str
    pod_uid: str
    incarnation: str
    connection: int | None
    """The number of its connection. None: not connected."""
    address: str
    nproc: int
    heard_at: float
    """The time of its last message."""
    replied_at: float | None = None
    """The time of the last heartbeat reply on this connection."""
    port: int | None = None
    """The port of its store. None unless it waits for a round."""
    lost_at: float | None = None
    """The time when its connection ended."""
    peer_heard_at: float | None = None
    """The last time at which it certainly lived, by its peers' reports. Kept while the coordinator does not hear it."""
    leaving: bool = False
    done: bool = False
    done_at: float | None = None
    """When its workers ended with success. None: unknown, or they have not."""
    cooperative: bool = False
    """True if its workers have polled for checkpoint requests, in this round or in an earlier one."""
    answered: int = 0
    """The last checkpoint request that all its workers have answered."""
    saves_on_request: bool = False
    """True if its workers have polled for requests to save, and its agent knows requests after which they continue."""
    saves: int = 0
    """Saves that its script has made by itself in this round."""
    shrinks: str = ""
    """Its `ShrinkState`, as its agent reports it. Empty: unknown."""
    shares_state: bool = False
    """True if its workers can give a rank that comes back their state."""
    step: int | None = None
    total: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    shown: ShownProgress = ShownProgress()
    versions: Mapping[str, str | None] = field(default_factory=dict)
    tolerates_versions: bool = True
    """False: unequal versions end the job."""
    checkpoint_problem: str = ""
    """Why it keeps no checkpoint, or has no copy of its last one."""
    clock_offset: float | None = None
    """Its wall clock minus the coordinator's clock at its last hello, in seconds; comparable among members only."""

    def assigned(self) -> "Member":
        """Return the member with a new place: it waits no longer, and what it reported before is void."""
        return replace(
            self,
            port=None,
            done=False,
            done_at=None,
            step=None,
            answered=0,
            saves=0,
            shrinks="",
            peer_heard_at=None,
            shares_state=False,
        )

    @property
    def waiting(self) -> bool:
        """True if the member can be put into a round now."""
        return self.connection is not None and self.port is not None and not self.leaving

    @property
    def known_step(self) -> int | None:
        """The step that its script reports, or else the one that its output shows."""
        return self.shown.step if self.step is None else self.step

    @property
    def shows_progress(self) -> bool:
        """True if it has a step, a percentage or metrics."""
        return self.known_step is not None or self.shown.percent is not None or bool(self.metrics)


@dataclass(frozen=True, slots=True)
class SilentAgent:
    """An agent that was lost because it sent nothing, or did not connect again."""

    pod_uid: str
    """The uid of the expected pod at that time; empty where pods have none."""
    since: float
    """The time of its last message."""


class Entry(NamedTuple):
    """A lost member on its way back into a running round."""

    rank: int
    """Of the member."""
    number: int
    """Of the change by which it comes in."""
    since: float
    """When it was assigned."""


@dataclass(frozen=True, slots=True)
class Round:
    """A set of members with fixed ranks that train together."""

    id: RoundId
    ranks: tuple[int | None, ...]
    """The member's index for each rank. None: a member that has not connected to this coordinator yet."""
    started_at: float
    world_size: int = 0
    """Worker processes. 0: unknown, because the round was adopted."""
    first_step: int | None = None
    """The first step that a member reported in this round."""
    shows: bool = False
    """True once a member has shown any progress in this round, reported or observed."""
    adopted: bool = False
    """True if another leader, or the members themselves, formed this round."""
    pod_uids: Mapping[int, str] = field(default_factory=dict)
    """The uid of each member's pod when it came in; empty where pods have none."""
    done: frozenset[int] = frozenset()
    """Indices of members whose workers have succeeded. They stay here if their pods go."""
    nprocs: tuple[int, ...] = ()
    """Workers of each member, by rank. Empty: unknown, because the round was adopted."""
    left: frozenset[int] = frozenset()
    """Ranks without whose members the others go on."""
    changes: int = 0
    """The number of the last change of its members. Numbers that are left out belong to entries that came to nothing.
    """
    entry: Entry | None = None
    takes_back: bool = True
    """False once a member has failed on its way back: it comes by a restart of all."""
    restarts: int = 0
    """Restarts of the job when the round began: its workers know this number."""
    store_port: int = 0
    """Where the member with rank 0 hosts the round's store. 0: unknown, because the members agreed on the round."""

    @property
    def present(self) -> tuple[int | None, ...]:
        """The indices in `ranks` of those that have not left."""
        if not self.left:
            return self.ranks
        return tuple(index for rank, index in enumerate(self.ranks) if rank not in self.left)

    @property
    def members(self) -> frozenset[int]:
        """The known members, for checks of many replicas."""
        return frozenset(index for index in self.present if index is not None)

    def has_left(self, index: int) -> bool:
        """True if the replica took part until the others went on without it."""
        return index in self.ranks and not self.has(index)

    @property
    def entering(self) -> int | None:
        """The index of the member that is on its way back; None: nobody is."""
        return None if self.entry is None else self.ranks[self.entry.rank]

    def has(self, index: int) -> bool:
        """True if the replica takes part."""
        return index in self.present


@dataclass(frozen=True, slots=True)
class Failure:
    """Workers of one member that failed, as the member reported."""

    index: int
    rank: int
    exit_code: int
    message: str
    traceback: str
    at: float
    """The time of the failure, by the coordinator's clock."""
    also: tuple[int, ...] = ()
    """Other ranks of the pod that failed later."""
    hang: bool = False
    waits: bool = False
    """Of a hang: True if the rank waits for another rank."""
    stopped: bool = False
    """Of a hang: True if a signal has stopped the rank."""
    idle: float = 0.0
    """Of a hang: seconds without progress before `at`, as the member measured them."""
    places: Mapping[str, str | None] = field(default_factory=dict)
    """Of a hang: where each rank of the pod is. None: it gave no stack."""
    positions: tuple[GroupPosition, ...] = ()
    """How far each rank of the pod is in its process groups."""
    errors: tuple[str, ...] = ()
    raised_in: str = ""
    early: bool = False
    """True if the rank ended with success while others needed it."""

    @property
    def unexplained(self) -> bool:
        """True if no type of an error is known: the program has ended by itself, or torchrun has told nothing."""
        return self.errors in ((), (CHILD_FAILED,))

    @property
    def evidence(self) -> Evidence:
        """Return what decides whether this failure caused the others."""
        flags = {"hang": self.hang, "waits": self.waits, "early": self.early}
        return Evidence(self.at, self.rank, self.exit_code, self.errors, self.raised_in, **flags)


@dataclass(frozen=True, slots=True)
class PlannedRestart:
    """A restart for which the workers save a checkpoint first."""

    reason: str
    deadline: float
    number: int
    """The number of the checkpoint request."""
    handles: bool = False
    """True if workers handle SIGTERM themselves: what is left of the time then belongs to their handlers."""


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """A request to save that the workers of a round have not answered yet. Training continues."""

    round: RoundId
    number: int
    members: frozenset[int]
    """The indices of the members that were asked."""
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class PastRestart:
    """One ended round, for the restart budget and for people."""

    at: float
    reason: TrainingReason
    message: str
    """Empty for a failure that a former coordinator counted."""
    counted: bool
    """True for failures: they cost a restart of the budget."""
    signature: str = ""
    """Equal for equal errors."""
    step: int | None = None
    """The last step that the round reached. None: unknown."""
    first: FirstFailure | None = None
    """Of a failure that this coordinator counted."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a job's training. No member joins any more."""

    reason: EndReason
    message: str
    exit_code: int
    at: float
    first: FirstFailure | None = None
    """The failure after which it ended, if one did it."""


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 member, 2 members."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
