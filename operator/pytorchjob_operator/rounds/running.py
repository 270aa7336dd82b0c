"""While a round runs: beats, failures, the end of workers, pods that are asked to go, members who come in addition."""

from dataclasses import replace

from pytorchjob_agent.contract.messages import (
    HEARTBEAT_REPLY_SECONDS,
    Checkpoint,
    Done,
    Draining,
    Failed,
    Heartbeat,
    HeartbeatReply,
    Hold,
    Join,
    Restart,
    Resumed,
    Unreachable,
)
from pytorchjob_operator.rounds import budget, gather
from pytorchjob_operator.rounds.state import Failure, Member, PastRestart, Planned, Round, Word
from pytorchjob_operator.rounds.turn import Turn

GROW_SECONDS = 1.0
"""How long a round waits for others to come along with a newcomer before it is formed anew."""
CHECKPOINT_SECONDS = 60.0
"""How long workers that save on request may take, where nobody is in a hurry."""


def beat(turn: Turn, member: Member, said: Heartbeat) -> None:
    """Note how far it has come, and whom it hears."""
    answers = member.ponged is None or turn.now - member.ponged >= HEARTBEAT_REPLY_SECONDS
    turn.put(
        member,
        heard=turn.now,
        ponged=turn.now if answers else member.ponged,
        lost=None,
        cooperative=said.cooperative,
        answered=max(member.answered, said.answered),
        step=said.step if said.step is not None else member.step,
        total=said.total,
        metrics=said.metrics,
    )
    if said.answered > turn.state.requests:
        turn.set(requests=said.answered)  # of another leader: ours must be told from them
    if answers:
        turn.tell(member, HeartbeatReply())
    turn.reason = "a beat"
    round_ = turn.state.round
    if round_ is None or not round_.has(member.index):
        return
    if said.step is not None and round_.first_step is None:
        turn.set(round=replace(round_, first_step=said.step))
    for rank in said.heard:
        index = round_.ranks[rank] if rank < len(round_.ranks) else None
        peer = None if index is None else turn.state.members.get(index)
        if peer is not None and peer is not member and (peer.lost is not None or turn.now - peer.heard > 1.0):
            turn.put(peer, echo=turn.now)


def join(turn: Turn, member: Member, said: Join) -> None:
    """It has no workers and waits: for the next round, or for a place in one."""
    round_, over = turn.state.round, turn.state.over
    if said.round is not None and (over is None or said.round > over):
        turn.set(over=said.round)
    if round_ is not None and round_.has(member.index) and said.round is not None and said.round < round_.id:
        _late(turn, member, round_)
        return
    member = turn.put(member, port=said.port)
    turn.reason = f"{member.pod} waits for a round"
    if round_ is None:
        if turn.state.gathering is None:
            gather.begin(turn, "the first members are here")
        return
    if turn.state.gathering is None and round_.has(member.index) and member.index not in round_.done:
        gather.begin(turn, f"{member.pod} has stopped its workers", caused=False)
    if turn.state.gathering is None:
        newcomers(turn)
    elif round_.has(member.index):
        gather.change(turn, stopped=True)


def _late(turn: Turn, member: Member, round_: Round) -> None:
    """It waited before this round began. Of one that was opened here it hears next; one that others agreed on or that
    another leader opened it may have begun with them, or not: it is asked.
    """
    if turn.state.gathering is None and not round_.adopted:
        turn.reason = f"{member.pod} said so before it heard of round {round_.id}"
        return
    if turn.state.gathering is None and member.index not in round_.done:
        gather.begin(turn, f"{member.pod} has stopped its workers", caused=False)
    else:
        turn.tell(member, Restart(round_.id, f"round {round_.id} is over"))
    turn.reason = f"{member.pod} waited before round {round_.id} began"


def newcomers(turn: Turn) -> None:
    """Tell those who wait beside a running round what for; if there is room for them, it is formed anew soon."""
    round_ = turn.state.round
    if round_ is None or turn.state.gathering is not None or turn.state.end is not None:
        return
    waiting = [one for one in turn.state.members.values() if one.waiting]
    if not waiting:
        return
    if round_.done:
        words = f"round {round_.id} comes to its end"
    elif len(round_.ranks) >= turn.state.policy.most:
        words = f"round {round_.id} has all members that it may have: a spare waits"
    else:
        words = f"round {round_.id} runs and is going to be formed anew"
        turn.set(growing=turn.now if turn.state.growing is None else turn.state.growing)
    for member in waiting:
        turn.tell(member, Hold(words))


def failed(turn: Turn, member: Member, said: Failed) -> None:
    """Workers failed: everybody stops and joins anew; who failed first is decided when all have."""
    round_ = turn.state.round
    if round_ is None or said.round != round_.id:
        turn.reason = f"{member.pod} tells of round {said.round}, which is over"
        return
    gathering = turn.state.gathering
    if gathering is not None and any((one.index, one.rank) == (member.index, said.rank) for one in gathering.failures):
        turn.reason = f"{member.pod} tells of the failure of rank {said.rank} again"
        return
    failure = Failure(
        index=member.index,
        rank=said.rank,
        exit_code=said.exit_code,
        message=said.message,
        traceback=said.traceback,
        at=turn.now - min(max(said.age, 0.0), 60.0),
        also=said.also,
        hang=said.hang,
        waits=said.waits,
    )
    gather.begin(turn, f"rank {said.rank} on {member.pod} failed", (failure,))


def done(turn: Turn, member: Member, said: Done) -> None:
    """Its workers ended well; the job has, once everybody's have."""
    round_ = turn.state.round
    if round_ is None or said.round != round_.id or turn.state.gathering is not None:
        turn.reason = f"{member.pod} tells of round {said.round}, which is over"
        return
    is_done(turn, member)
    turn.reason = f"{member.pod} is done"
    finish(turn)


def is_done(turn: Turn, member: Member) -> None:
    """Note that a member of the present round is done: that stays, whatever becomes of its pod."""
    round_ = turn.state.round
    if round_ is not None and round_.has(member.index):
        turn.put(member, done=True)
        turn.set(round=replace(round_, done=round_.done | {member.index}))


def finish(turn: Turn) -> None:
    """End the job with success if every member of the round is done."""
    round_ = turn.state.round
    if round_ is None or turn.state.gathering is not None or turn.state.end is not None:
        return
    seats = turn.state.seats
    done = round_.done | {index for index, seat in seats.items() if seat.done}
    strangers = round_.ranks.count(None)  # of an adopted round: they may have ended before they could say hello
    if strangers > len(done - set(round_.ranks)) or not done.issuperset(set(round_.ranks) - {None}):
        return
    gather.succeed(turn, "every member is done")


def resumed(turn: Turn, member: Member, said: Resumed) -> None:
    """The members went on by themselves while the coordinator was away."""
    member, round_ = turn.put(member, port=None), turn.state.round
    if round_ is not None and round_.has(member.index) and said.round == round_.id:
        turn.reason = f"{member.pod} tells of round {said.round}, which is known"
        return
    if round_ is None or not round_.has(member.index) or not said.round.follows(round_.id):
        _too_late(turn, member, said)
        return
    past = PastRestart(turn.now, Word.FAILED, said.reason, True, step=budget.reached(turn.state))
    turn.set(
        round=replace(round_, id=said.round, since=turn.now, adopted=True, first_step=None, done=frozenset()),
        gathering=None,
        planned=None,
        restarts=max(turn.state.restarts, said.restarts),
        history=budget.remember(turn.state.history, past),
    )
    gather.idle(turn)
    newcomers(turn)
    turn.reason = f"the members agreed on round {said.round}"
    turn.say(Word.ROUND, f"The members agreed on round {said.round} without the coordinator: {said.reason}")


def _too_late(turn: Turn, member: Member, said: Resumed) -> None:
    """The others are elsewhere by now."""
    round_ = turn.state.round
    id_ = said.round if round_ is None else max(round_.id, said.round)
    turn.tell(member, Restart(id_, f"the others were not in round {said.round} any more"))
    if round_ is not None and round_.has(member.index):
        gather.begin(turn, f"{member.pod} was in round {said.round}")
    turn.reason = f"{member.pod} tells of round {said.round}, which is over"


def draining(turn: Turn, member: Member, said: Draining) -> None:
    """A pod has to go: its peers save first if they can, then they go on without it."""
    member = turn.put(member, leaving=True)
    round_ = turn.state.round
    turn.reason = f"{member.pod} has to go within {said.seconds:g} s"
    if round_ is None or not round_.has(member.index) or turn.state.gathering is not None:
        gather.release(turn)
        return
    if member.index in round_.done:
        return  # it may be gone before the others are done as well
    plan(turn, f"{member.pod} has to go ({said.reason or 'SIGTERM'})", max(said.seconds, 0.0))


def plan(turn: Turn, reason: str, seconds: float) -> None:
    """Restart as soon as the workers have saved; at once where they would not hear of it."""
    round_, planned = turn.state.round, turn.state.planned
    assert round_ is not None
    deadline = turn.now + min(seconds, CHECKPOINT_SECONDS)
    if planned is not None:
        turn.set(planned=replace(planned, deadline=min(planned.deadline, deadline)))
        return
    if not any(one.cooperative for one in turn.in_round()) or seconds <= 0:
        gather.begin(turn, reason)
        return
    number = turn.state.requests + 1
    turn.set(requests=number, planned=Planned(reason, deadline, number))
    for member in turn.in_round():
        turn.tell(member, Checkpoint(round_.id, number, deadline - turn.now, reason))


def advance(turn: Turn) -> None:
    """Do what is due: a planned restart, or a larger round."""
    state = turn.state
    if state.end is not None or state.gathering is not None or state.round is None:
        return
    planned = state.planned
    if planned is not None:
        late = turn.now >= planned.deadline
        if late or all(one.answered >= planned.number for one in turn.in_round() if one.cooperative):
            gather.begin(turn, planned.reason)
    elif state.growing is not None and (turn.now - state.growing >= GROW_SECONDS or not _others_come(turn)):
        turn.set(growing=None)
        new = [one.pod for one in state.members.values() if one.waiting and not state.round.has(one.index)]
        if new and len(state.round.ranks) < state.policy.most:
            plan(turn, f"{', '.join(new[:3])} joined", CHECKPOINT_SECONDS)


def _others_come(turn: Turn) -> bool:
    """Whether the job has replicas that neither take part nor wait yet, and that nothing keeps from coming."""
    state = turn.state
    there = {one.index for one in state.members.values() if one.waiting}
    if state.round is not None:
        there.update(index for index in state.round.ranks if index is not None)
    return any(index not in there and not seat.done and not seat.trouble for index, seat in state.seats.items())


def unreachable(turn: Turn, member: Member, said: Unreachable) -> None:
    """A member could not open a connection to a peer."""
    turn.problem(
        Word.UNREACHABLE,
        f"{member.pod} cannot reach {said.peer}: {said.error}. Let the job's pods reach each other on every port"
        " (NetworkPolicy, service mesh)",
    )
    turn.reason = f"{member.pod} cannot reach {said.peer}"
