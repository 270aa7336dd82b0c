"""The commands of the coordinator that stand for this agent now. Pure: `receive` takes one message after the other.

Commands of finished rounds are dropped here, whichever coordinator sent them and however late: this is the fence.
"""

from dataclasses import dataclass, replace

from pytorchjob_agent.contract.messages import (
    Assigned,
    Checkpoint,
    Finished,
    HeartbeatReply,
    Hold,
    Refused,
    Restart,
    RoundId,
    Save,
    Shrink,
    Stop,
    Terminating,
    ToAgent,
    Welcome,
)


@dataclass(frozen=True, slots=True)
class Inbox:
    """The newest command of each kind."""

    round: RoundId | None = None
    """The last round that this agent took part in."""
    entered: int = 0
    """The change by which it came back into `round`; 0: it has been there from the beginning."""
    assigned: Assigned | None = None
    """A later round, which has not begun yet."""
    restart: Restart | None = None
    """Stop the workers of `round` and join again."""
    shrink: Shrink | None = None
    """Who has left `round`: its workers go on without them."""
    checkpoint: Checkpoint | None = None
    """A request to save: for the workers of `round`, or for those of `assigned`, which have not started yet."""
    save: Save | None = None
    """The same for a request after which training continues."""
    stop: Stop | None = None
    terminating: bool = False
    """The pod is being deleted."""
    finished: bool = False
    hold: str = ""
    """What the coordinator waits for, in its words."""
    trains: RoundId | None = None
    """The latest round that is known to have begun without this agent."""
    refused: Refused | None = None
    """Why the coordinator did not accept the last hello; None once it has accepted one."""
    welcomes: int = 0
    """How many hellos were accepted: another one may mean another coordinator."""

    @property
    def save_request(self) -> Checkpoint | None:
        """The request to save that stands for the workers of `round`."""
        return self.checkpoint if self.checkpoint is not None and self.checkpoint.round == self.round else None

    @property
    def save_and_continue(self) -> Save | None:
        """The same for a request after which training continues."""
        return self.save if self.save is not None and self.save.round == self.round else None


def receive(inbox: Inbox, message: ToAgent) -> Inbox:
    """Return the inbox after one more message; the same object if nothing changes."""
    match message:
        case Assigned(round=id_, enters=number) if number:
            # It has been in this round, or has not begun it: what was said about that time is void.
            is_new = inbox.round is None or id_ > inbox.round or (id_ == inbox.round and number > inbox.entered)
            return replace(inbox, assigned=message, restart=None, shrink=None, hold="") if is_new else inbox
        case Assigned(round=id_):
            return replace(inbox, assigned=message, hold="") if _is_later(inbox, id_) else inbox
        case Restart(round=id_):
            return replace(inbox, restart=message) if _concerns(inbox, id_) else inbox
        case Shrink(round=id_):
            return replace(inbox, shrink=message) if id_ == inbox.round and _is_news(inbox, message) else inbox
        case Checkpoint(round=id_):
            return replace(inbox, checkpoint=message) if id_ in (inbox.round, _next(inbox)) else inbox
        case Save(round=id_):
            return replace(inbox, save=message) if id_ in (inbox.round, _next(inbox)) else inbox
        case Finished(round=id_):
            return replace(inbox, finished=True) if id_ == inbox.round else inbox
        case Stop():
            return replace(inbox, stop=message)
        case Terminating():
            return inbox if inbox.terminating else replace(inbox, terminating=True)
        case Hold(reason=reason, round=id_):
            return replace(inbox, hold=reason, trains=id_ or inbox.trains)
        case Refused():
            return replace(inbox, refused=message)
        case Welcome():
            return replace(inbox, refused=None, welcomes=inbox.welcomes + 1)
        case HeartbeatReply():
            return inbox


def begin(inbox: Inbox, id_: RoundId, entered: int = 0) -> Inbox:
    """Return the inbox once a round has begun: commands about older rounds are void.

    `entered`: the change by which the agent comes back into this round.
    """
    next_ = inbox.assigned
    later = next_ is not None and (next_.round > id_ or (next_.round == id_ and next_.enters > entered))
    assigned = next_ if later else None
    restart = inbox.restart if inbox.restart is not None and inbox.restart.round >= id_ else None
    request = inbox.checkpoint if inbox.checkpoint is not None and inbox.checkpoint.round == id_ else None
    save = inbox.save if inbox.save is not None and inbox.save.round == id_ else None
    shrink = inbox.shrink if inbox.round == id_ else None
    begun = replace(inbox, round=id_, entered=entered, assigned=assigned, restart=restart, shrink=shrink)
    return replace(begun, checkpoint=request, save=save, finished=False, hold="")


def skip(inbox: Inbox) -> Inbox:
    """Return the inbox without a round that has ended before it began."""
    next_ = inbox.assigned
    return inbox if next_ is None else replace(begin(inbox, next_.round, next_.enters), restart=None)


def ended(inbox: Inbox) -> RoundId | None:
    """Return the latest round that is over for an agent without workers."""
    known = [inbox.round, None if inbox.restart is None else inbox.restart.round]
    return max((id_ for id_ in known if id_ is not None), default=None)


def over(inbox: Inbox) -> bool:
    """Return whether the assigned round has ended before it began."""
    restart, assigned = inbox.restart, inbox.assigned
    return restart is not None and assigned is not None and restart.round >= assigned.round


def superseded(inbox: Inbox, id_: RoundId) -> bool:
    """Return whether a round that has begun here is known to be over: ended by a command, or followed by another."""
    restart, assigned = inbox.restart, inbox.assigned
    ended_ = restart is not None and restart.round >= id_
    return ended_ or (assigned is not None and assigned.round > id_) or inbox.stop is not None


def _is_news(inbox: Inbox, message: Shrink) -> bool:
    """Return whether a change of the round is not known yet, or who waits to come back or is on the way."""
    known = inbox.shrink
    if known is None or message.number > known.number:
        return True
    same = message.awaited is known.awaited and message.entering == known.entering
    return message.number == known.number and not same


def _next(inbox: Inbox) -> RoundId | None:
    """Return the round that is about to begin."""
    return None if inbox.assigned is None else inbox.assigned.round


def _concerns(inbox: Inbox, id_: RoundId) -> bool:
    """Return whether a command about this round concerns ours, or the one that is about to begin."""
    ours = inbox.round or _next(inbox)
    return ours is None or id_ >= ours


def _is_later(inbox: Inbox, id_: RoundId) -> bool:
    known = inbox.assigned.round if inbox.assigned is not None else inbox.round
    return known is None or id_ > known
