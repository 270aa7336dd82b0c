"""One event at a time: `decide(state, event, now) -> Decision`. Pure: no socket, clock or chance.

The coordinator's shell feeds it with what agents say and with time, and sends what it orders. Any state may be lost:
what is needed of it comes back with the agents' hellos.
"""

from pytorchjob_agent.contract.messages import (
    Done,
    Draining,
    Failed,
    Heartbeat,
    Hello,
    Join,
    Resumed,
    Unreachable,
)
from pytorchjob_operator.rounds import arrive, gather, lost, running
from pytorchjob_operator.rounds.state import Closed, Decision, Event, Expect, JobState, Said, TurnedAway
from pytorchjob_operator.rounds.turn import Turn


def decide(state: JobState, event: Event, now: float) -> Decision:
    """Return the next state and what to say to whom, with the reason."""
    turn = Turn(lost.awake(state, now), now)
    match event:
        case Said(link, _, Hello() as hello):
            arrive.hello(turn, link, hello)
        case Said():
            _said(turn, event)
        case Closed(link, index):
            lost.closed(turn, link, index)
        case Expect():
            lost.expect(turn, event)
        case TurnedAway(message):
            arrive.turned_away(turn, message)
        case _:
            turn.reason = "time went by"
    if turn.state.end is None:
        _follow(turn, event)
    return Decision(turn.state, tuple(turn.orders), tuple(turn.news), turn.reason)


def _follow(turn: Turn, event: Event) -> None:
    """Do what has become due. A beat changes little and comes often: of it, only a planned restart hears."""
    if isinstance(event, Said) and isinstance(event.message, Heartbeat):
        if turn.state.planned is not None:
            running.advance(turn)
        return
    if not isinstance(event, Said):
        lost.look(turn)
        arrive.forgive(turn)
    running.finish(turn)
    running.advance(turn)
    gather.advance(turn)


def _said(turn: Turn, event: Said) -> None:
    """Hand a message on, if it comes by the member's present connection."""
    member = None if event.index is None else turn.state.members.get(event.index)
    if member is None or member.link != event.link:
        turn.reason = "said on an old connection"
        return
    if isinstance(event.message, Heartbeat):
        running.beat(turn, member, event.message)
        return
    member = turn.put(member, heard=turn.now, lost=None)
    if turn.state.end is not None:
        turn.reason = "the job has ended"
        return
    match event.message:
        case Join() as said:
            running.join(turn, member, said)
        case Failed() as said:
            running.failed(turn, member, said)
        case Done() as said:
            running.done(turn, member, said)
        case Resumed() as said:
            running.resumed(turn, member, said)
        case Draining() as said:
            running.draining(turn, member, said)
        case Unreachable() as said:
            running.unreachable(turn, member, said)
