"""The next step of an agent whose workers run or are done. Pure: a `Snapshot` has what is known, with the time.

Without the coordinator nothing changes while the workers run. A round ends by a command of the coordinator, by the
workers, by a request of another member in the round's store, or after a silence of both coordinator and members.
"""

from dataclasses import dataclass
from enum import StrEnum

from pytorchjob_agent.contract.messages import LEASE_SECONDS, Shrink, Stop
from pytorchjob_agent.rendezvous.inbox import Inbox

ALONE_SECONDS = LEASE_SECONDS
"""After this time without the coordinator and without any peer, the others may continue without this agent."""


class Workers(StrEnum):
    """The state of this agent's workers."""

    RUN = "run"
    DONE = "done"
    FAILED = "failed"
    HANG = "hang"
    STOPPED = "stopped"
    """They were asked to save and to end, and did."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known at one moment."""

    now: float
    workers: Workers
    inbox: Inbox
    away: float = 0.0
    """Seconds without the coordinator."""
    absent: bool = False
    """Whether the members have to do without it."""
    silence: float = 0.0
    """Seconds without any peer."""
    peers_restart: str | None = None
    """Why a peer asks for a restart through the store."""
    all_done: bool = False
    """Whether the workers of all members are done, by the store."""
    leave_by: float | None = None
    """When this pod has to be gone; None: it may stay."""
    reported_leaving: bool = False
    shrunk: Shrink | None = None
    """The last word about those that have left the round that the workers were told."""
    cut_off: bool = False
    """Whether no member has heard from the control plane for fenceSeconds."""
    fenced: bool = False
    """Whether another agent has the place of this one."""


class StepKind(StrEnum):
    """What to do."""

    WAIT = "wait"
    REGROUP = "regroup"
    SHRINK = "shrink"
    REPORT_FAILURE = "report failure"
    REPORT_DONE = "report done"
    REPORT_LEAVING = "report leaving"
    LEAVE = "leave"
    STOP = "stop"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Step:
    """What to do, and why."""

    kind: StepKind
    reason: str
    by_members: bool = False
    """Whether the members have to agree on the next round among themselves."""
    caused: bool = False
    """Whether the round ends for another reason than a failure."""
    stop: Stop | None = None


def decide(snapshot: Snapshot) -> Step:
    """Return the next step."""
    inbox = snapshot.inbox
    if snapshot.fenced:
        return Step(StepKind.STOP, "another agent has taken this place")
    if inbox.stop is not None:
        return Step(StepKind.STOP, inbox.stop.message, stop=inbox.stop)
    if inbox.finished:
        return Step(StepKind.FINISH, "every member is done")
    if snapshot.workers in (Workers.FAILED, Workers.HANG):
        return Step(StepKind.REPORT_FAILURE, "workers failed here", by_members=snapshot.absent)
    if inbox.restart is not None:
        reason = inbox.restart.reason or "the coordinator asks for another round"
        return Step(StepKind.REGROUP, reason, caused=inbox.restart.caused)
    if inbox.assigned is not None:
        return Step(StepKind.REGROUP, f"round {inbox.assigned.round} has begun", caused=True)
    if inbox.shrink is not None and inbox.shrink is not snapshot.shrunk:
        return Step(StepKind.SHRINK, inbox.shrink.reason)
    if snapshot.peers_restart is not None and snapshot.absent:  # the coordinator decides while it answers
        return Step(StepKind.REGROUP, snapshot.peers_restart, by_members=True)
    return _quiet(snapshot)


def _quiet(snapshot: Snapshot) -> Step:
    """Return the step without a command."""
    if snapshot.cut_off:
        reason = "no member has heard from the coordinator or the API server for fenceSeconds"
        return Step(StepKind.REGROUP, reason, caused=True)
    if snapshot.away >= ALONE_SECONDS and snapshot.silence >= ALONE_SECONDS:
        reason = f"neither the coordinator nor a peer was heard for {snapshot.silence:.0f} s"
        return Step(StepKind.REGROUP, reason, caused=True)
    if snapshot.workers is Workers.DONE:
        return _done(snapshot)
    if snapshot.workers is Workers.STOPPED and snapshot.leave_by is None:
        if snapshot.absent:
            reason = "the workers have stopped and no coordinator answers"
            return Step(StepKind.REGROUP, reason, by_members=True, caused=True)
        return Step(StepKind.WAIT, "the workers have saved and stopped")
    if snapshot.leave_by is not None:
        return _leaving(snapshot, snapshot.leave_by)
    return Step(StepKind.WAIT, "the workers run")


def _done(snapshot: Snapshot) -> Step:
    if snapshot.all_done and snapshot.absent:
        return Step(StepKind.FINISH, "every member is done, by the round's store")
    if snapshot.leave_by is not None and snapshot.now >= snapshot.leave_by:
        return Step(StepKind.LEAVE, "the time to leave is over")
    return Step(StepKind.REPORT_DONE, "the workers are done here")


def _leaving(snapshot: Snapshot, by: float) -> Step:
    if snapshot.now >= by:
        return Step(StepKind.LEAVE, "the time to leave is over")
    if snapshot.absent:
        return Step(StepKind.LEAVE, "this pod has to go and no coordinator answers")
    if not snapshot.reported_leaving:
        return Step(StepKind.REPORT_LEAVING, "this pod has to go")
    return Step(StepKind.WAIT, "the others save")
