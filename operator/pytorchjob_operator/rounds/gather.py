"""Between two rounds: who is waited for, when there are enough, and which ranks they get.

A round is formed when everybody who is expected waits; an elastic one also without those who do not come in time. Ranks
follow the replicas' indices, so that a survivor keeps its place among the others.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from pytorchjob_agent.contract.messages import Assigned, Finished, Hold, Restart, RoundId, Stop
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.rounds import budget, compare
from pytorchjob_operator.rounds.state import (
    End,
    EndReason,
    Failure,
    Gathering,
    Member,
    PastRestart,
    Round,
    Seat,
    Word,
)
from pytorchjob_operator.rounds.turn import Turn

STOPPING_SECONDS = 10.0
"""How long members may take to stop their workers before an elastic round goes on without them."""
TELL_EVERY = 15.0
"""How often those who wait hear what for."""
TELL_FIRST = 5.0
DRAINED = "Drained"


def begin(turn: Turn, reason: str, failures: tuple[Failure, ...] = (), *, caused: bool = True) -> None:
    """End the present round, if any, and have its members join anew; `caused`: nothing that fails after this counts."""
    now, round_ = turn.now, turn.state.round
    gathering = turn.state.gathering
    turn.reason = reason
    if gathering is not None:
        change(turn, failures=(*gathering.failures, *failures), stopped=gathering.stopped or bool(failures))
        return
    gathering = Gathering(now, reason, failures, first=round_ is None)
    gathering = replace(gathering, caused=caused and not failures, stopped=bool(failures))
    turn.set(gathering=gathering, planned=None, growing=None)
    if round_ is None:
        heed_success(turn)
        return
    for member in turn.in_round():
        if member.port is None:
            turn.tell(member, Restart(round_.id, reason, dump=any(one.hang for one in failures)))
    release(turn)


def change(turn: Turn, **changes: Any) -> None:
    """Note something about the gathering, if there is one."""
    if turn.state.gathering is not None:
        turn.set(gathering=replace(turn.state.gathering, **changes))


def idle(turn: Turn) -> None:
    """End a round of which a member has no workers: it waited before the others agreed to go on."""
    round_ = turn.state.round
    if round_ is None or turn.state.gathering is not None:
        return
    idlers = [one for one in turn.in_round() if one.port is not None and one.index not in round_.done]
    for member in idlers:
        turn.put(member, port=None)  # it may have agreed with the others meanwhile: it is told to stop as they are
    if idlers:
        begin(turn, f"{', '.join(one.pod for one in idlers[:3])} wait for a round")


def release(turn: Turn) -> None:
    """Let those go that were asked to."""
    for member in turn.state.members.values():
        if member.leaving:
            turn.tell(member, Stop(ExitCode.DRAINED, DRAINED, "the pod was asked to go"))


def advance(turn: Turn) -> None:
    """Form the next round if it is time; called after every event."""
    gathering = turn.state.gathering
    if gathering is None or turn.state.end is not None:
        return
    if _still_stopping(turn, gathering):
        return
    if not gathering.counted and not _count(turn, gathering):
        return
    gathering = turn.state.gathering
    assert gathering is not None
    if len(turn.state.members) < turn.state.policy.least and not _is_due(turn, gathering):
        return  # most of a large job's agents come to this: nothing here may look at all the others
    waiting = [one for one in turn.state.members.values() if one.waiting]
    enough = turn.now >= gathering.not_before and _enough(turn, gathering, waiting)
    if enough and not _may_run(turn, gathering):
        form(turn, waiting)
    else:
        _wait(turn, gathering, waiting)


def heed_success(turn: Turn) -> None:
    """End a job of which no round is known but a pod has succeeded; called when either of both may be new."""
    gathering = turn.state.gathering
    if gathering is not None and gathering.first and any(seat.done for seat in turn.state.seats.values()):
        succeed(turn, "a pod of this job has succeeded, which none does before all are done")  # another leader saw it


def _still_stopping(turn: Turn, gathering: Gathering) -> bool:
    """Whether members are connected that have yet to stop the workers of the last round."""
    if turn.now - gathering.since > STOPPING_SECONDS:
        return False
    return any(
        one.link is not None and one.port is None and not one.leaving and one.lost is None
        for one in turn.in_round(last_first=True)  # they are told by rank, so that the last ones mostly stop last
    )


def _count(turn: Turn, gathering: Gathering) -> bool:
    """Put what ended the last round into the books; False when that ends the job."""
    state = turn.state
    if not gathering.failures or gathering.caused or _is_echo(turn, gathering):
        past = PastRestart(turn.now, Word.REGROUPING, gathering.reason, False, step=budget.reached(state))
        turn.set(gathering=replace(gathering, counted=True))
        if not gathering.first and state.round is not None:
            turn.set(history=budget.remember(state.history, past))
            turn.say(Word.REGROUPING, f"Round {state.round.id} ends: {gathering.reason}")
        return True
    verdict = budget.judge(state, gathering.failures, turn.now)
    turn.set(history=budget.remember(state.history, verdict.restart))
    turn.say(Word(verdict.restart.reason), verdict.words, warning=True)
    if verdict.end is not None:
        end(turn, verdict.end)
        return False
    changed = replace(gathering, counted=True, not_before=turn.now + verdict.pause, reason=verdict.words)
    turn.set(restarts=state.restarts + 1, gathering=changed)
    return True


def _is_echo(turn: Turn, gathering: Gathering) -> bool:
    """Whether workers failed only because a member of their round was lost: that costs no restart."""
    known = turn.state.round
    indices = () if known is None else known.ranks
    members = [None if index is None else turn.state.members.get(index) for index in indices]
    away = any(one is None or one.link is None or one.leaving for one in members)
    return (away or gathering.lost) and budget.may_follow(budget.root(gathering.failures))


def end(turn: Turn, how: End) -> None:
    """End the job: everybody is told to stop."""
    turn.set(end=how, gathering=None, planned=None, growing=None)
    turn.reason = f"{how.reason}: {how.message}"
    turn.say(Word.GAVE_UP, f"{how.reason}: {how.message}", warning=True)
    for member in turn.state.members.values():
        turn.tell(member, Stop(how.exit_code, how.reason, how.message[:4096]))


def succeed(turn: Turn, why: str) -> None:
    """End the job with success."""
    round_ = turn.state.round
    how = End(EndReason.SUCCEEDED, why, ExitCode.OK, turn.now)
    turn.set(end=how, gathering=None, planned=None, growing=None)
    turn.reason = why
    for member in turn.state.members.values():
        if round_ is not None and round_.has(member.index) and member.done:
            turn.tell(member, Finished(round_.id))
        else:
            turn.tell(member, Stop(ExitCode.OK, EndReason.SUCCEEDED, "the job has succeeded without this spare"))


def _missing(turn: Turn, waiting: Sequence[Member]) -> list[int]:
    """The replicas that the job has and that do not wait here."""
    here = {one.index for one in waiting}
    return [index for index, seat in sorted(turn.state.seats.items()) if index not in here and not seat.done]


def _enough(turn: Turn, gathering: Gathering, waiting: Sequence[Member]) -> bool:
    policy = turn.state.policy
    if len(waiting) < policy.least:
        return False
    if len(waiting) >= policy.most and not gathering.first:  # at first, those who are missing may be at work already
        return True
    coming = [index for index in _missing(turn, waiting) if not turn.state.seats[index].trouble]
    if not gathering.first:
        coming = [index for index in coming if _may_be_back(turn, index)]
    patience = policy.last_call if gathering.first else policy.grace
    return not coming or turn.now - gathering.since >= patience


def _may_be_back(turn: Turn, index: int) -> bool:
    """Whether the agent of a replica's present pod was here and stays: a new pod takes longer than the grace."""
    member = turn.state.members.get(index)
    return member is not None and not member.leaving and not replaced(turn.state.seats[index], member.pod_uid)


def replaced(seat: Seat, uid: str) -> bool:
    """Whether another pod has the place of this one by now."""
    return bool(uid and seat.pod_uid and seat.pod_uid != uid)


def _may_run(turn: Turn, gathering: Gathering) -> bool:
    """Whether the last round may still be at work out of our sight: nobody of it is known to have stopped.

    Two groups of one job must never train at once; the operator's word on a pod ends the doubt.
    """
    known, seats = turn.state.round, turn.state.seats
    if known is None or gathering.stopped:
        return False
    return not any(_is_over(seats.get(index), uid) for index, uid in known.pods.items())


def _is_over(seat: Seat | None, uid: str) -> bool:
    """Whether a pod runs no more, as the operator sees it."""
    return seat is None or bool(seat.trouble) or seat.done or replaced(seat, uid)


def form(turn: Turn, waiting: Sequence[Member]) -> None:
    """Open a round with these, or the best of them."""
    state = turn.state
    chosen = _choose(turn, waiting)
    unequal = compare.versions(chosen)
    turn.problem(Word.VERSIONS, unequal)
    turn.problem(Word.CLOCKS, compare.clocks(chosen))
    if unequal is not None and not all(one.warns for one in chosen):
        end(turn, End(EndReason.VERSIONS, unequal, ExitCode.PREFLIGHT, turn.now))
        return
    id_ = _next_id(turn)
    gathering = state.gathering
    reason = gathering.reason if gathering else ""
    sizes = [one.nproc for one in chosen]
    turn.set(
        round=Round(
            id_,
            tuple(one.index for one in chosen),
            turn.now,
            world=sum(sizes),
            pods={one.index: one.pod_uid for one in chosen},
        ),
        next_number=id_.number + 1,
        gathering=None,
        planned=None,
        growing=None,
    )
    for rank, first in enumerate(accumulate([0, *sizes[:-1]])):
        _assign(turn, chosen, rank, first, reason)
    assigned = {one.index: replace(one, port=None, done=False, step=None, answered=0, echo=None) for one in chosen}
    turn.set(members={**turn.state.members, **assigned})
    for member in waiting:
        if member.index not in turn.state.round.ranks:  # type: ignore[union-attr]
            turn.tell(member, Hold(f"round {id_} has all {len(chosen)} members that it may have: a spare waits"))
    turn.problem(Word.WAITING, None)
    turn.problem(Word.UNREACHABLE, None)
    turn.reason = f"round {id_}: {len(chosen)} members, {sum(sizes)} workers"
    turn.say(Word.ROUND, f"Round {id_} starts with {len(chosen)} members and {sum(sizes)} workers")


def _assign(turn: Turn, chosen: Sequence[Member], rank: int, first_rank: int, reason: str) -> None:
    state, member, master = turn.state, chosen[rank], chosen[0]
    assert state.round is not None
    next_ = chosen[(rank + 1) % len(chosen)]
    turn.tell(
        member,
        Assigned(
            round=state.round.id,
            rank=rank,
            size=len(chosen),
            first_rank=first_rank,
            world_size=state.round.world,
            master_address=master.address,
            master_port=master.port or 1,
            restarts=state.restarts,
            neighbour="" if next_ is member else f"{next_.address}:{next_.port}",
            reason=reason[:1024],
        ),
    )


def _choose(turn: Turn, waiting: Sequence[Member]) -> list[Member]:
    """Take those who were in the last round first, then the lowest indices; by index in the end."""
    last = turn.state.round
    preferred = sorted(waiting, key=lambda one: (last is not None and not last.has(one.index), one.index))
    return sorted(preferred[: turn.state.policy.most], key=lambda one: one.index)


def _next_id(turn: Turn) -> RoundId:
    """Later than every round that is known: epochs begin anew where somebody deletes the Lease, or its namespace."""
    state = turn.state
    mine = RoundId(state.term, state.next_number)
    before = max((one for one in (state.round and state.round.id, state.over) if one), default=None)
    return mine if before is None or mine > before else RoundId(before.term, before.number + 1)


def _is_late(turn: Turn, gathering: Gathering) -> bool:
    return turn.now - gathering.since >= turn.state.policy.timeout


def _is_due(turn: Turn, gathering: Gathering) -> bool:
    """Whether those who wait hear something now."""
    due = gathering.since + TELL_FIRST if gathering.told is None else gathering.told + TELL_EVERY
    return turn.now >= due or _is_late(turn, gathering)


def _wait(turn: Turn, gathering: Gathering, waiting: Sequence[Member]) -> None:
    """Say what is waited for, at first soon, then now and then; give up after the timeout."""
    if not _is_due(turn, gathering):
        return
    late = _is_late(turn, gathering)
    words = _words(turn, gathering, waiting)
    if late:
        message = f"no round came about within {turn.state.policy.timeout:g} s: {words}"
        turn.problem(Word.WAITING, message)
        for member in waiting:
            turn.tell(member, Stop(ExitCode.RENDEZVOUS, EndReason.TIMEOUT, message))
            turn.put(member, port=None)
        turn.set(gathering=None)
        turn.reason = message
        return
    turn.set(gathering=replace(gathering, told=turn.now))
    turn.problem(Word.WAITING, words)
    for member in waiting:
        turn.tell(member, Hold(words))


def _words(turn: Turn, gathering: Gathering, waiting: Sequence[Member]) -> str:
    policy, state, missing = turn.state.policy, turn.state, _missing(turn, waiting)
    if turn.now < gathering.not_before:
        return f"the next round begins {gathering.not_before - turn.now:.0f} s from now: {gathering.reason}"
    if _enough(turn, gathering, waiting) and state.round is not None:
        return f"round {state.round.id} may still train: none of its members can be heard, and their pods are there"
    shown = [f"{state.seats[i].pod} ({state.seats[i].trouble or _why(turn, i)})" for i in missing[:3]]
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    pods = f": waiting for {', '.join(shown)}{more}" if shown else ": the job has no more pods"
    return f"{len(waiting)} of at least {policy.least} members are here{pods}"[:1000]


def _why(turn: Turn, index: int) -> str:
    """Why a replica whose pod is fine does not wait with the others."""
    member = turn.state.members.get(index)
    if member is None:
        return "its agent has not come"
    if member.link is None:
        return "its agent's connection is lost"
    return "it is asked to go" if member.leaving else "it has not stopped its workers yet"
