"""What an agent without workers does until its next round begins. Pure: `next_step` is called again and again.

The coordinator assigns the round. Without it, the members of the last round agree on the next one through that round's
store. The workers notice no difference.
"""

from dataclasses import dataclass, replace

from pytorchjob_agent.contract.messages import Assigned, Join, RoundId, Stop
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.rendezvous import inbox as commands
from pytorchjob_agent.rendezvous.inbox import Inbox

POLL_SECONDS = 0.1
REPORT_SECONDS = 15.0
"""How often the log names the reason for waiting."""
AGREEMENT_SECONDS = 5.0
"""How long members try to agree without the coordinator although it answers."""


@dataclass(frozen=True, slots=True)
class WaitProgress:
    """How far this agent is with its wait."""

    since: float
    join: Join
    """The request that the coordinator has, or is going to get."""
    offered: bool = False
    """Whether the other members were offered to continue without the coordinator."""
    reported: float = 0.0
    """When the log last named the reason for waiting."""


@dataclass(frozen=True, slots=True)
class WaitSnapshot:
    """What is known at one moment."""

    now: float
    inbox: Inbox
    away: float
    """Seconds without the coordinator."""
    absent: bool = False
    """Whether the members have to do without it."""
    round: RoundId | None = None
    """The last round whose store this agent has opened."""
    has_store: bool = False
    leaving: bool = False
    """Whether this pod has to go."""
    cut_off: bool = False
    """Whether no member has heard from the control plane for fenceSeconds."""
    timeout: float = 600.0
    """Seconds without the coordinator after which the agent gives up."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Take part in this round."""

    assigned: Assigned


@dataclass(frozen=True, slots=True)
class JoinAgain:
    """Send the request to join again; `skip`: drop the assigned round before."""

    join: Join
    skip: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """Offer the other members, through the last round's store, to continue without the coordinator."""


@dataclass(frozen=True, slots=True)
class Agree:
    """Read in the store whether all members have offered; if so, begin the round that follows."""


@dataclass(frozen=True, slots=True)
class KeepWaiting:
    """Wait a moment; `report`: log this reason."""

    report: str = ""


@dataclass(frozen=True, slots=True)
class Stopped:
    """There is no next round for this agent: the coordinator has stopped it."""

    stop: Stop


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another agent has the place of this one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """This pod has to go."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotReached:
    """The coordinator was not reached in time."""

    why: ExitReason
    reason: str


@dataclass(frozen=True, slots=True)
class Unfit:
    """This pod, or its node, cannot train any more."""

    reason: str


End = Stopped | Fenced | Leaving | NotReached | Unfit
Step = Begin | JoinAgain | Offer | Agree | KeepWaiting | End


def next_step(waiting: WaitProgress, known: WaitSnapshot) -> Step:
    """Return what to do now."""
    inbox = known.inbox
    end = _end(waiting, known)
    if end is not None:
        return end
    if commands.over(inbox):
        return JoinAgain(waiting.join, skip=True)
    if inbox.assigned is not None:
        return Begin(inbox.assigned)
    last = commands.ended(inbox)
    if last != waiting.join.round:  # the coordinator does not want the round that the members may agree on
        return JoinAgain(replace(waiting.join, round=last))
    if waiting.offered:
        if known.cut_off or _others_train(known) or (known.away == 0 and known.now - waiting.since > AGREEMENT_SECONDS):
            return JoinAgain(waiting.join)
        return Agree()
    if known.absent and may_offer(known):
        return Offer()
    return keep_waiting(waiting, known)


def may_offer(known: WaitSnapshot) -> bool:
    """Return whether the other members can still be met in the store of the last round."""
    met = known.has_store and known.round is not None and commands.ended(known.inbox) == known.round
    return met and not known.cut_off and not _others_train(known)  # cut off: they may train in a later round by now


def _others_train(known: WaitSnapshot) -> bool:
    """Return whether the coordinator has begun a round without this agent since the last one here."""
    trains = known.inbox.trains
    return trains is not None and known.round is not None and trains > known.round


def keep_waiting(waiting: WaitProgress, known: WaitSnapshot) -> KeepWaiting:
    """Return the step that waits; it reports now and then."""
    if known.now - max(waiting.reported, waiting.since) <= REPORT_SECONDS:
        return KeepWaiting()
    return KeepWaiting(_why(known))


def taken(waiting: WaitProgress, step: Step, now: float) -> WaitProgress:
    """Return how far the wait is after a step that worked."""
    match step:
        case JoinAgain(join=join):
            return replace(waiting, join=join, offered=False)
        case Offer():
            return replace(waiting, offered=True)
        case KeepWaiting(report=report) if report:
            return replace(waiting, reported=now)
        case _:
            return waiting


def is_decided(inbox: Inbox) -> bool:
    """Return whether the wait can end at once."""
    return inbox.assigned is not None or inbox.stop is not None


def _end(waiting: WaitProgress, known: WaitSnapshot) -> End | None:
    inbox = known.inbox
    if inbox.stop is not None:
        return Stopped(inbox.stop)
    if inbox.refused is not None and inbox.refused.fenced:
        return Fenced(inbox.refused.message)
    if known.leaving:
        return Leaving("the pod was asked to go while it waited for a round")
    if known.away > known.timeout and known.now - waiting.since > known.timeout:
        why = ExitReason.AGENT_REFUSED if inbox.refused is not None else ExitReason.COORDINATOR_UNREACHABLE
        return NotReached(why, f"no coordinator within {known.timeout:g} s: {_why(known)}")
    return None


def _why(known: WaitSnapshot) -> str:
    if known.inbox.refused is not None:
        return f"the coordinator refuses this agent: {known.inbox.refused.message}"
    if known.away > 0:
        return (
            f"the coordinator has not answered for {known.away:.0f} s"
            " (is the operator running, may this pod reach its Service?)"
        )
    return known.inbox.hold or "the coordinator waits for the other members"
