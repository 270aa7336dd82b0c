"""What the coordinator has ordered, as it stands for this agent now. Pure: `hear` takes one message after the other.

Orders of rounds that are over are dropped here, whoever sends them and however late: that is the fence.
"""

from dataclasses import dataclass, replace

from pytorchjob_agent.contract.messages import (
    Assigned,
    Checkpoint,
    Finished,
    Hold,
    Refused,
    Restart,
    RoundId,
    Stop,
    ToAgent,
    Welcome,
)


@dataclass(frozen=True, slots=True)
class Inbox:
    """The newest order of each kind."""

    round: RoundId | None = None
    """The last round that this agent took part in."""
    assigned: Assigned | None = None
    """A later round, not begun yet."""
    restart: Restart | None = None
    """Stop the workers of `round` and join anew."""
    checkpoint: Checkpoint | None = None
    stop: Stop | None = None
    finished: bool = False
    hold: str = ""
    """What is waited for, in the coordinator's words."""
    refused: Refused | None = None
    """Why the last hello was not accepted; None once one was."""
    welcomes: int = 0
    """How many hellos were accepted: another one may mean another coordinator."""


def hear(inbox: Inbox, message: ToAgent) -> Inbox:
    """Return what stands after one more message."""
    match message:
        case Assigned(round=id_):
            return replace(inbox, assigned=message, hold="") if _later(inbox, id_) else inbox
        case Restart(round=id_):
            return replace(inbox, restart=message) if _concerns(inbox, id_) else inbox
        case Checkpoint(round=id_):
            return replace(inbox, checkpoint=message) if id_ == inbox.round else inbox
        case Finished(round=id_):
            return replace(inbox, finished=True) if id_ == inbox.round else inbox
        case Stop():
            return replace(inbox, stop=message)
        case Hold(reason=words):
            return replace(inbox, hold=words)
        case Refused():
            return replace(inbox, refused=message)
        case Welcome():
            return replace(inbox, refused=None, welcomes=inbox.welcomes + 1)
    return inbox


def begin(inbox: Inbox, id_: RoundId) -> Inbox:
    """Return what stands once a round has begun: orders about older ones are void."""
    assigned = inbox.assigned if inbox.assigned is not None and inbox.assigned.round > id_ else None
    restart = inbox.restart if inbox.restart is not None and inbox.restart.round >= id_ else None
    return replace(inbox, round=id_, assigned=assigned, restart=restart, checkpoint=None, finished=False, hold="")


def skip(inbox: Inbox) -> Inbox:
    """Return what stands without a round that has ended before it began."""
    return inbox if inbox.assigned is None else replace(begin(inbox, inbox.assigned.round), restart=None)


def ended(inbox: Inbox) -> RoundId | None:
    """Return the latest round that is over for an agent without workers."""
    known = [inbox.round, None if inbox.restart is None else inbox.restart.round]
    return max((one for one in known if one is not None), default=None)


def over(inbox: Inbox) -> bool:
    """Whether the round that was assigned has ended before it began."""
    order, assigned = inbox.restart, inbox.assigned
    return order is not None and assigned is not None and order.round >= assigned.round


def _concerns(inbox: Inbox, id_: RoundId) -> bool:
    """Whether an order about this round is one about ours, or about the one that is about to begin."""
    ours = inbox.round or (inbox.assigned.round if inbox.assigned is not None else None)
    return ours is None or id_ >= ours


def _later(inbox: Inbox, id_: RoundId) -> bool:
    known = inbox.assigned.round if inbox.assigned is not None else inbox.round
    return known is None or id_ > known
