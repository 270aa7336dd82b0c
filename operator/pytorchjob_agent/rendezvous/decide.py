"""The next step of an agent whose workers run or are done. Pure: what is known comes in as a `Look`, with the time.

Without the coordinator nothing changes as long as the workers run. What ends a round is told by the coordinator, by the
workers, by the other members through the round's store, or by nobody at all for too long.
"""

from dataclasses import dataclass
from enum import StrEnum

from pytorchjob_agent.contract.messages import LEASE_SECONDS, Stop
from pytorchjob_agent.rendezvous.inbox import Inbox

ALONE_SECONDS = LEASE_SECONDS
"""Without the coordinator and without any peer for so long: whoever can still talk goes on without us."""
AWAY_SECONDS = 1.5
"""A coordinator that has not answered for so long is not waited for."""


class Workers(StrEnum):
    """How the workers of this agent stand."""

    RUN = "run"
    DONE = "done"
    FAILED = "failed"
    HANG = "hang"
    STOPPED = "stopped"
    """They were asked to save and to end, and did."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is known at one moment."""

    now: float
    workers: Workers
    inbox: Inbox
    away: float = 0.0
    """Seconds without the coordinator."""
    silence: float = 0.0
    """Seconds without any peer."""
    wanted: str | None = None
    """Why a peer asks for a restart through the store."""
    all_done: bool = False
    """Whether the workers of all members are done, by the store."""
    leave_by: float | None = None
    """When this pod has to be gone; None: nobody asked it to go."""
    told_leaving: bool = False
    fenced: bool = False
    """Whether another agent has our place."""


class Kind(StrEnum):
    """What to do."""

    WAIT = "wait"
    REGROUP = "regroup"
    TELL_FAILURE = "tell failure"
    TELL_DONE = "tell done"
    TELL_LEAVING = "tell leaving"
    LEAVE = "leave"
    STOP = "stop"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do, and why."""

    kind: Kind
    reason: str
    by_members: bool = False
    """Of a regrouping: whether the members have to agree on the next round among themselves."""
    stop: Stop | None = None
    until: float | None = None


def decide(look: Look) -> Step:
    """Return the next step."""
    inbox = look.inbox
    if look.fenced:
        return Step(Kind.STOP, "another agent has taken this place")
    if inbox.stop is not None:
        return Step(Kind.STOP, inbox.stop.message, stop=inbox.stop)
    if inbox.finished:
        return Step(Kind.FINISH, "every member is done")
    if look.workers in (Workers.FAILED, Workers.HANG):
        return Step(Kind.TELL_FAILURE, "workers failed here", by_members=look.away > AWAY_SECONDS)
    if inbox.restart is not None:
        return Step(Kind.REGROUP, inbox.restart.reason or "the coordinator asks for another round")
    if inbox.assigned is not None:
        return Step(Kind.REGROUP, f"round {inbox.assigned.round} has begun")
    if look.wanted is not None:
        return Step(Kind.REGROUP, look.wanted, by_members=True)
    return _quiet(look)


def _quiet(look: Look) -> Step:
    """Nobody ordered anything."""
    if look.away >= ALONE_SECONDS and look.silence >= ALONE_SECONDS:
        return Step(Kind.REGROUP, f"neither the coordinator nor a peer was heard for {look.silence:.0f} s")
    if look.workers is Workers.DONE:
        return _done(look)
    if look.workers is Workers.STOPPED and look.leave_by is None:
        if look.away > AWAY_SECONDS:
            return Step(Kind.REGROUP, "the workers have stopped and no coordinator answers", by_members=True)
        return Step(Kind.WAIT, "the workers have saved and stopped")
    if look.leave_by is not None:
        return _leaving(look, look.leave_by)
    return Step(Kind.WAIT, "the workers run")


def _done(look: Look) -> Step:
    if look.all_done and look.away > AWAY_SECONDS:
        return Step(Kind.FINISH, "every member is done, by the round's store")
    if look.leave_by is not None and look.now >= look.leave_by:
        return Step(Kind.LEAVE, "the time to leave is over")
    return Step(Kind.TELL_DONE, "the workers are done here", until=look.leave_by)


def _leaving(look: Look, by: float) -> Step:
    if look.now >= by:
        return Step(Kind.LEAVE, "the time to leave is over")
    if look.away > AWAY_SECONDS:
        return Step(Kind.LEAVE, "this pod has to go and no coordinator answers")
    if not look.told_leaving:
        return Step(Kind.TELL_LEAVING, "this pod has to go")
    return Step(Kind.WAIT, "the others save", until=by)
