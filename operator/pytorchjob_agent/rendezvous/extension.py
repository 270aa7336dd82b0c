"""What a member can do besides its rounds: the one seam between the core of the agent and everything optional.

An extension has a folder of its own, and a line in `pytorchjob_agent.extensions`. The core calls it at each point of a
round, and knows nothing of what it does.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from pytorchjob_agent.contract.messages import Assigned, Shrink
from pytorchjob_agent.rendezvous.agreement import MemberStanding
from pytorchjob_agent.rendezvous.hang_verdict import HangVerdict
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.script.agent_side import ProgressFiles
from pytorchjob_agent.stacks.recorders import Recorders
from pytorchjob_agent.stacks.stack_analysis import StackPlace
from pytorchjob_agent.stacks.stack_dump import StackDumps

Share = Callable[[MemberStanding], Sequence[MemberStanding] | None]
"""Takes the standing of the workers here, and returns those of all other members where they are known: at rank 0."""


class NotStartedError(Exception):
    """The workers of this round do not start: a member cannot have what they need; the text has the reason."""


class RoundEndedError(NotStartedError):
    """The round has ended before its workers started."""


@dataclass(frozen=True, slots=True)
class OpenRound:
    """A round whose workers have not started yet."""

    assigned: Assigned
    store: SignedStore
    """What members write for each other, by the membership's own connection."""
    connect: Callable[[], SignedStore]
    """Makes another connection, for a thread."""
    goes_on: Callable[[], bool]
    """False once the round has ended."""


@dataclass(frozen=True, slots=True)
class StartingWorkers:
    """The workers of this pod in a round, which are about to start."""

    directory: Path
    """Of this pod and round. The core removes it after the round."""
    nproc: int
    files: ProgressFiles
    stacks: StackDumps
    recorders: Recorders


@dataclass(frozen=True, slots=True)
class RunningWorkers:
    """The workers of this pod in a round, which have started."""

    pids: Mapping[int, int]
    """By local rank."""
    assigned: Assigned
    share: Share
    """Reports to rank 0 whether the workers here make progress; returns the same of all other members there."""
    report_now: Callable[[], None] = lambda: None
    """Lets the coordinator hear the next heartbeat at once."""


@dataclass(frozen=True, slots=True)
class OwnPod:
    """What an extension may need of the pod that it is in."""

    environ: Mapping[str, str]
    job: str
    """The job's uid."""
    address: str
    """Where peers reach this pod."""
    nproc: int
    """Workers of this pod."""


class Extension:
    """Does nothing. Each extension overrides what it needs."""

    @property
    def problem(self) -> str:
        """What people should know, as a reason with words behind it; empty without a problem."""
        return ""

    def prepare(self) -> None:
        """The agent is about to join a round, without workers."""

    def open(self, round_: OpenRound) -> None:
        """A round begins. Raises NotStartedError if its workers must not start, RuntimeError without a store."""

    def wait(self, round_: OpenRound) -> None:
        """Wait, for a bounded time, for what was begun in `open`; all extensions have begun by then."""

    def variables(self, starting: StartingWorkers) -> Sequence[Mapping[str, str]]:
        """The workers are about to start: return the variables that each of them needs, by local rank."""
        return ()

    def begin(self, running: RunningWorkers) -> None:
        """The workers of the round have started."""

    def shrink(self, change: Shrink, ranks: Sequence[int]) -> None:
        """Other members have left the round, or come back; it has these ranks of workers now."""

    @property
    def reads_lines(self) -> bool:
        """Whether it reads what the workers of this round print."""
        return False

    def add_line(self, local_rank: int, line: bytes) -> None:
        """Take a line that a worker has printed; the thread that reads the output calls it."""

    def report(self, now: float, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return fields of the next heartbeat; `fields` are those that are known. The client's thread calls it."""
        return {}

    def judge(self, now: float) -> HangVerdict | None:
        """Return why the workers have to be restarted, if so."""
        return None

    def pause(self, now: float) -> float:
        """Return in how many seconds `judge` is due again."""
        return inf

    def last_place(self, local_rank: int) -> StackPlace | None:
        """Return where a worker is that gives no stack now, if that is known."""
        return None

    def over(self, *, clean: bool) -> None:
        """All workers have ended; `clean`: with success."""

    def settled(self, *, ended: bool) -> bool:
        """Return whether a pod that leaves may go; `ended`: its workers have ended with success."""
        return True

    def finished(self) -> bool:
        """Return whether the job may count as done, after workers that ended with success."""
        return True

    def leave(self, by: float) -> None:
        """The agent ends, and may take until this monotonic time."""

    def close(self) -> None:
        """The agent ends: close ports and threads."""


def _nothing(environ: MutableMapping[str, str]) -> None:
    """Leave the environment as it is."""


@dataclass(frozen=True, slots=True)
class Registered:
    """How an extension comes to life. Both functions may raise ContractError for wrong settings."""

    create: Callable[[OwnPod], Extension]
    equip: Callable[[MutableMapping[str, str]], None] = _nothing
    """Changes the environment of the agent and its workers, before any process has loaded a library."""


class Extensions(Extension):
    """All extensions of an agent, called in their order."""

    def __init__(self, *all_: Extension) -> None:
        """Take them in the order in which they open a round."""
        self.all: Sequence[Extension] = all_

    @property
    def problem(self) -> str:
        """Return the first problem."""
        return next(filter(None, (each.problem for each in self.all)), "")

    def prepare(self) -> None:
        """Have all of them prepare."""
        for each in self.all:
            each.prepare()

    def open(self, round_: OpenRound) -> None:
        """Have all of them begin, and then wait."""
        for each in self.all:
            each.open(round_)
        for each in self.all:
            each.wait(round_)

    def variables(self, starting: StartingWorkers) -> Sequence[Mapping[str, str]]:
        """Return the variables of all of them."""
        found: list[dict[str, str]] = [{} for _ in range(starting.nproc)]
        for each in self.all:
            for own, more in zip(found, each.variables(starting), strict=False):
                own.update(more)
        return found

    def begin(self, running: RunningWorkers) -> None:
        """Tell all of them."""
        for each in self.all:
            each.begin(running)

    def shrink(self, change: Shrink, ranks: Sequence[int]) -> None:
        """Tell all of them."""
        for each in self.all:
            each.shrink(change, ranks)

    @property
    def reads_lines(self) -> bool:
        """Return whether any of them does."""
        return any(each.reads_lines for each in self.all)

    def add_line(self, local_rank: int, line: bytes) -> None:
        """Pass it on to all of them."""
        for each in self.all:
            each.add_line(local_rank, line)

    def report(self, now: float, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of all of them."""
        return {name: value for each in self.all for name, value in each.report(now, fields).items()}

    def judge(self, now: float) -> HangVerdict | None:
        """Return the first verdict."""
        return next(filter(None, (each.judge(now) for each in self.all)), None)

    def pause(self, now: float) -> float:
        """Return the shortest time."""
        return min((each.pause(now) for each in self.all), default=inf)

    def last_place(self, local_rank: int) -> StackPlace | None:
        """Return the first place."""
        return next(filter(None, (each.last_place(local_rank) for each in self.all)), None)

    def over(self, *, clean: bool) -> None:
        """Tell all of them."""
        for each in self.all:
            each.over(clean=clean)

    def settled(self, *, ended: bool) -> bool:
        """Return whether none has anything left to do; each of them hears that the pod leaves."""
        states = [each.settled(ended=ended) for each in self.all]
        return all(states)

    def finished(self) -> bool:
        """Return whether none has anything left to do; each of them hears that the workers are done."""
        states = [each.finished() for each in self.all]
        return all(states)

    def leave(self, by: float) -> None:
        """Have all of them leave."""
        for each in self.all:
            each.leave(by)

    def close(self) -> None:
        """Close all of them."""
        for each in self.all:
            each.close()
