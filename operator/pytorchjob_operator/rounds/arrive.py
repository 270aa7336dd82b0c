"""An agent says hello: is the place its own, and what does it find there.

The operator's word on which pod a replica is decides; where it has none, the one that is there and alive stays. A
coordinator that has forgotten learns the running round from those who say hello in it.
"""

from collections.abc import Mapping
from dataclasses import replace

from pytorchjob_agent.contract.messages import (
    VERSION,
    Checkpoint,
    Finished,
    Hello,
    Refused,
    Restart,
    RoundId,
    Stop,
    Welcome,
)
from pytorchjob_operator.rounds import gather, running
from pytorchjob_operator.rounds.state import EndReason, Member, Round, Tell, Word
from pytorchjob_operator.rounds.turn import Turn

FRESH_SECONDS = 2.0
"""Who was heard of so recently is alive."""
REFUSED_SECONDS = 60.0
"""For how long it stays a problem of the job that somebody was turned away."""


def hello(turn: Turn, link: int, said: Hello) -> None:
    """Let an agent in, or say why not."""
    refused = _refuse(turn, said)
    if refused is not None:
        turn.reason = f"{said.pod} is refused: {refused.message}"
        turn.orders.append(Tell(link, refused))
        turn.hang_up(link)
        return
    before = turn.state.members.get(said.index)
    again = before is not None and before.incarnation == said.incarnation
    member = _seat(turn, link, said)
    turn.tell(member, Welcome(turn.state.term))
    turn.reason = f"{said.pod} is here"
    if turn.state.end is not None:
        _tell_end(turn, member, said)
        return
    _place(turn, member, said, again)
    if member.leaving and turn.state.planned is None:
        gather.release(turn)


def turned_away(turn: Turn, message: str) -> None:
    """Note that somebody could not prove who it is; told once for all who come while it is known."""
    turn.set(turned_away=turn.now)
    turn.reason = message
    if Word.REFUSED not in turn.state.problems:
        turn.problem(Word.REFUSED, message)


def forgive(turn: Turn) -> None:
    """Let these problems go once nobody has come for a while."""
    state, long_ago = turn.state, turn.now - REFUSED_SECONDS
    if state.turned_away is not None and state.turned_away <= long_ago:
        turn.set(turned_away=None)
        turn.problem(Word.REFUSED, None)
    if state.doubled is not None and state.doubled <= long_ago:
        turn.set(doubled=None)
        turn.problem(Word.DOUBLE, None)


def _refuse(turn: Turn, said: Hello) -> Refused | None:
    if said.version != VERSION:
        return Refused(f"protocol version {said.version}: this operator speaks {VERSION}: use its agent's image")
    seat, known = turn.state.seats.get(said.index), turn.state.members.get(said.index)
    uid = seat.pod_uid if seat is not None else ""
    if uid and said.pod_uid and uid != said.pod_uid:
        if said.pod_uid in turn.state.former.get(said.index, ()) or _outlived(turn, said, uid):
            return Refused(f"{said.pod} is another pod by now", fenced=True)
        return Refused(f"the operator has not told of this pod of the name {said.pod} yet", again=True)
    if known is None or known.incarnation == said.incarnation or (uid and uid == said.pod_uid != known.pod_uid):
        return None
    alive = known.link is not None and known.lost is None and turn.now - known.heard < FRESH_SECONDS
    if not alive:
        return None
    words = f"another agent stands for replica {said.index} ({known.pod}): only one container of a pod may run it"
    turn.set(doubled=turn.now)
    turn.problem(Word.DOUBLE, words)
    return Refused(words, again=True)


def _seat(turn: Turn, link: int, said: Hello) -> Member:
    """Make the member, or give a known one its new connection."""
    known = turn.state.members.get(said.index)
    offset = said.clock - turn.now if said.clock else None
    if known is not None and known.link is not None and known.link != link:
        turn.hang_up(known.link)
    if known is not None and known.incarnation == said.incarnation:
        done = said.done or known.done
        return turn.put(known, link=link, heard=turn.now, ponged=None, lost=None, port=None, done=done, offset=offset)
    return turn.put(
        Member(
            index=said.index,
            pod=said.pod,
            pod_uid=said.pod_uid,
            incarnation=said.incarnation,
            link=link,
            address=said.address,
            nproc=said.nproc,
            heard=turn.now,
            done=said.done,
            versions=said.versions,
            warns=said.warnings,
            offset=offset,
        )
    )


def _outlived(turn: Turn, said: Hello, uid: str) -> bool:
    """Whether the replica's present pod was in a later round: a new leader was not told which pods came before it."""
    round_ = turn.state.round
    return (
        round_ is not None and said.round is not None and said.round < round_.id and round_.pods.get(said.index) == uid
    )


def _tell_end(turn: Turn, member: Member, said: Hello) -> None:
    end = turn.state.end
    assert end is not None
    if end.reason is EndReason.SUCCEEDED and said.done and said.round is not None:
        turn.tell(member, Finished(said.round))
    else:
        turn.tell(member, Stop(end.exit_code, end.reason, end.message[:4096]))


def _place(turn: Turn, member: Member, said: Hello, again: bool) -> None:
    """Compare the round in which its workers run with the one that is known; `again`: it was here before."""
    known, theirs = turn.state.round, said.round
    if theirs is not None and (known is None or theirs > known.id):
        if not 0 <= said.rank < said.size:
            turn.tell(member, Restart(theirs, "its rank is outside of its round"))
            return
        _adopt(turn, member, said)
    elif known is None:
        return
    elif theirs == known.id and said.size == len(known.ranks):
        _recognise(turn, member, said)
    elif theirs is not None:
        turn.tell(member, Restart(known.id, f"round {known.id} came after {theirs}"))
        _broken(turn, member, again)
    else:
        _broken(turn, member, again)


def _broken(turn: Turn, member: Member, again: bool) -> None:
    """A replica of the running round has no workers in it any more."""
    known = turn.state.round
    if known is None or not known.has(member.index):
        return
    if turn.state.gathering is None and member.index not in known.done:
        words = "has stopped its workers" if again else "was started anew"
        gather.begin(turn, f"{member.pod} {words}", caused=not again)
    elif not again:
        gather.change(turn, lost=True)
    if not again:
        gather.change(turn, stopped=True)


def _adopt(turn: Turn, member: Member, said: Hello) -> None:
    """Believe in a round that another leader opened, or the members themselves."""
    assert said.round is not None
    old = turn.state.round
    ranks: list[int | None] = [None] * said.size
    pods: Mapping[int, str] = {}
    if old is not None and said.round.follows(old.id):
        ranks, pods = list(old.ranks), old.pods
    else:
        _supersede(turn, said.round)
    if len(ranks) != said.size or ranks[said.rank] not in (None, member.index):
        ranks, pods = [None] * said.size, {}
    turn.set(
        round=Round(said.round, tuple(ranks), turn.now, world=0, adopted=True, pods=pods),
        gathering=None,
        planned=None,
    )
    _take(turn, member, said)
    turn.reason = f"round {said.round} goes on"
    gather.idle(turn)
    running.newcomers(turn)


def _supersede(turn: Turn, id_: RoundId) -> None:
    """Stop those who were left behind in the round that was taken for the last one until now."""
    for member in turn.in_round():
        if member.port is None:
            turn.tell(member, Restart(id_, f"round {id_} came after theirs"))


def _take(turn: Turn, member: Member, said: Hello) -> None:
    """Put a member into the round that it says it is in."""
    known = turn.state.round
    assert known is not None
    ranks = [None if index == member.index else index for index in known.ranks]
    ranks[said.rank] = member.index
    pods = {**known.pods, member.index: said.pod_uid}
    turn.set(round=replace(known, ranks=tuple(ranks), pods=pods), restarts=max(turn.state.restarts, said.restarts))
    if said.done:
        running.is_done(turn, member)


def _recognise(turn: Turn, member: Member, said: Hello) -> None:
    """One more member of an adopted round, or an old acquaintance after a break."""
    known = turn.state.round
    assert known is not None
    if turn.state.gathering is not None:
        turn.tell(member, Restart(known.id, turn.state.gathering.reason))
        return
    holder = known.ranks[said.rank]
    if holder not in (None, member.index):
        turn.tell(member, Restart(known.id, f"rank {said.rank} is {turn.name(holder or 0)}'s"))
        return
    _take(turn, member, said)
    planned = turn.state.planned
    if planned is not None:
        turn.tell(member, Checkpoint(known.id, planned.number, planned.deadline - turn.now, planned.reason))
