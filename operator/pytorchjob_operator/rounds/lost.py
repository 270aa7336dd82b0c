"""Who is gone: by a connection that ended, by silence, by the operator's word; and who is only out of our sight.

A member whose peers still hear it through the round's store is cut off from the coordinator alone: its training goes
on, and so does everybody's.
"""

from dataclasses import replace

from pytorchjob_agent.contract.messages import HEARTBEAT_SECONDS, LEASE_SECONDS
from pytorchjob_operator.rounds import gather, running
from pytorchjob_operator.rounds.state import Expect, JobState, Member, Word
from pytorchjob_operator.rounds.turn import Turn

RECONNECT_SECONDS = 2.5 * HEARTBEAT_SECONDS
"""How long a member without connection may take to come back: by then its peers have told whether they hear it."""
ADOPTED_SECONDS = 10.0
"""How long the members of a round that the coordinator does not know from its own may take to come."""
STALL_SECONDS = 2.0
"""A coordinator that has not looked for so long has been asleep itself, and blames nobody for it."""
DARK_SECONDS = LEASE_SECONDS - 1.5 * HEARTBEAT_SECONDS
"""Connections that fall silent together run out of their leases at most a beat apart."""
_FORMER = 8
"""Former pods of a replica that are remembered."""
ECHO_SECONDS = 3.0 * HEARTBEAT_SECONDS
"""How long a peer's word that it hears a member is good for."""


def awake(state: JobState, now: float) -> JobState:
    """Return the state with all waits moved on by the time that the coordinator slept itself."""
    gap = now - state.looked
    if state.looked == 0.0 or gap <= STALL_SECONDS:
        return replace(state, looked=now)
    members = {
        index: replace(
            one,
            heard=one.heard + gap,
            lost=None if one.lost is None else one.lost + gap,
            echo=None if one.echo is None else one.echo + gap,
        )
        for index, one in state.members.items()
    }
    return replace(state, members=members, looked=now)


def closed(turn: Turn, link: int, index: int) -> None:
    """A connection ended; its member may come back on another one."""
    member = turn.state.members.get(index)
    if member is None or member.link != link:
        turn.reason = "an old connection ended"
        return
    turn.reason = f"{member.pod}: connection lost"
    if member.leaving or turn.state.end is not None:
        _gone(turn, member, "has left")
    else:
        turn.put(member, link=None, port=None, lost=turn.now)


def expect(turn: Turn, event: Expect) -> None:
    """Take over what the job is now; a member whose pod is gone, and that is silent too, is gone."""
    former = dict(turn.state.former)
    for index, before in turn.state.seats.items():
        after = event.seats.get(index)
        if before.pod_uid and (after is None or after.pod_uid != before.pod_uid):
            former[index] = (*former.get(index, ()), before.pod_uid)[-_FORMER:]
    grows = event.policy.most > turn.state.policy.most
    turn.set(policy=event.policy, seats=event.seats, former=former)
    if grows:
        running.newcomers(turn)
    turn.reason = f"the job has {len(event.seats)} replicas"
    for member in tuple(turn.state.members.values()):
        seat = event.seats.get(member.index)
        if member.link is None and (seat is None or gather.replaced(seat, member.pod_uid)):
            _gone(turn, member, "is no more")
    gather.heed_success(turn)


def look(turn: Turn) -> None:
    """Find the members that have been away for too long."""
    if _in_the_dark(turn):
        return
    cut_off = []
    for member in tuple(turn.state.members.values()):
        since = _since(turn, member)
        if since is None:
            continue
        if _overheard(turn, member, since):
            cut_off.append(member.pod)
        elif turn.now - since >= _patience(turn, member):
            if member.link is not None:
                turn.hang_up(member.link)
            _gone(turn, member, f"has not been heard of for {turn.now - since:.1f} s")
    names = ", ".join(cut_off[:3])
    turn.problem(
        Word.CUT_OFF,
        f"{names} cannot reach the coordinator, but its peers hear it: training goes on. Is a NetworkPolicy in the way?"
        if cut_off
        else None,
    )
    _strangers(turn)
    gather.idle(turn)


def _in_the_dark(turn: Turn) -> bool:
    """Whether nobody at all is heard: that is no sign of anybody's death, and there is nobody to tell.

    Their training needs no coordinator; whoever comes back first gives the others the usual time to follow.
    """
    members = turn.state.members.values()
    if not members or any(one.lost is None and turn.now - one.heard < DARK_SECONDS for one in members):
        return False
    for member in tuple(turn.state.members.values()):
        if member.link is not None and turn.now - member.heard >= LEASE_SECONDS:
            turn.hang_up(member.link)
            turn.put(member, link=None, port=None, lost=turn.now)
        elif member.lost is not None:
            turn.put(member, lost=turn.now)
    words = "no agent of this job can reach the coordinator: what trains goes on. Is a NetworkPolicy in the way?"
    turn.problem(Word.CUT_OFF, words)
    return True


def _since(turn: Turn, member: Member) -> float | None:
    """Since when nothing has come from it; None while that is no sign of anything."""
    if member.lost is not None:
        return member.lost
    return member.heard if turn.now - member.heard > LEASE_SECONDS / 2 else None


def _overheard(turn: Turn, member: Member, since: float) -> bool:
    """Whether a peer has heard it since, and not long ago."""
    if member.echo is None or turn.state.round is None or not turn.state.round.has(member.index):
        return False
    later = (
        member.echo > since + 1.2 * HEARTBEAT_SECONDS
    )  # what a peer tells may be as old as the time between two beats
    return later and turn.now - member.echo < ECHO_SECONDS


def _patience(turn: Turn, member: Member) -> float:
    if member.index not in turn.state.seats and turn.state.seats:
        return RECONNECT_SECONDS / 2  # its pod is gone by the operator's word
    return RECONNECT_SECONDS if member.lost is not None else LEASE_SECONDS


def _gone(turn: Turn, member: Member, why: str) -> None:
    """Forget a member; the round that it was in is over, unless it had done its part."""
    turn.drop(member.index)
    round_ = turn.state.round
    if turn.state.end is not None or round_ is None or not round_.has(member.index):
        return
    if turn.state.gathering is not None:
        gather.change(turn, lost=True)
    elif member.index not in round_.done:
        gather.begin(turn, f"{member.pod} {why}")


def _strangers(turn: Turn) -> None:
    """End an adopted round of which somebody has never come."""
    round_ = turn.state.round
    if round_ is None or not round_.adopted or turn.state.gathering is not None or None not in round_.ranks:
        return
    others = [(index, seat) for index, seat in turn.state.seats.items() if not round_.has(index)]
    done = sum(1 for _, seat in others if seat.done)
    idle = sum(1 for index, _ in others if (one := turn.state.members.get(index)) is not None and one.waiting)
    strangers = round_.ranks.count(None) - done
    nobody = turn.state.seats and strangers > len(others) - done - idle  # whoever could be one is here, and is not
    if strangers > 0 and (nobody or turn.now - round_.since >= ADOPTED_SECONDS):
        missing = ", ".join(str(rank) for rank, index in enumerate(round_.ranks) if index is None)
        gather.begin(turn, f"rank {missing} of round {round_.id} did not come back")
