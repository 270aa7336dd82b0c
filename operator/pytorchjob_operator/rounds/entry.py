"""A lost member comes back into a running round without a restart of the others: whether it may, and its end. Pure.

Its workers start beside the round and prepare (`workers/startup/pytorchjob_shrink`). The workers take it in by
themselves before one of their steps, and report that afterwards. Until then it counts as a member that has left. Every
other change of the round ends its way back: its workers are killed, and it waits beside the round again.
"""

from dataclasses import replace

from pytorchjob_agent.contract.messages import Assigned, Heartbeat
from pytorchjob_agent.contract.reasons import ShrinkState, TrainingReason
from pytorchjob_operator.rounds import past_failures, shrink, versions
from pytorchjob_operator.rounds.phases import Running, Trigger
from pytorchjob_operator.rounds.state import JobState
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Entry, Member, Round


def begin(transition: Transition, phase: Running) -> bool:
    """Let a lost member that waits prepare to come back into the round; True if one does, now or already."""
    round_, state = phase.round, transition.state
    if round_.entry is not None:
        return True
    if phase.planned is not None or round_.done or not round_.takes_back or not _take_in(state, round_):
        return False
    for rank in sorted(round_.left):
        index = round_.ranks[rank]
        member = None if index is None else state.members.get(index)
        if member is None or not member.waiting or member.nproc != round_.nprocs[rank]:
            continue
        if versions.unequal_versions([*state.in_round(), member]) is not None:
            continue
        _assign(transition, phase, member, rank)
        return True
    return False


def _take_in(state: JobState, round_: Round) -> bool:
    """Return whether the workers of all members can take others in."""
    if not round_.left or not round_.nprocs or not round_.store_port:
        return False
    if shrink.of_members(state, round_.members) is not ShrinkState.READY:
        return False
    return all(member.shares_state and member.shrinks != ShrinkState.BROKEN for member in state.in_round())


def _assign(transition: Transition, phase: Running, member: Member, rank: int) -> None:
    """Give the member its place in the round, with the number of the change by which it comes in."""
    round_, state = phase.round, transition.state
    entry = Entry(rank, round_.changes + 1, transition.now)
    round_ = replace(round_, entry=entry)
    transition.update(phase, replace(phase, round=round_))
    member = transition.put(member.assigned())
    host = next(iter(state.in_round()))
    pod = state.pods.get(member.index)
    transition.send(
        member,
        Assigned(
            round=round_.id,
            rank=rank,
            size=len(round_.ranks),
            first_rank=sum(round_.nprocs[:rank]),
            world_size=sum(round_.nprocs),
            master_address=host.address,
            master_port=round_.store_port,
            restarts=round_.restarts,
            past_failures=past_failures.encode(state.history, transition.now),
            reason=f"round {round_.id} goes on",
            zone="" if pod is None else pod.zone,
            enters=entry.number,
        ),
    )
    _tell_all(transition, round_)
    transition.reason = f"{member.pod} comes back into round {round_.id}"


def end_if_late(transition: Transition, phase: Running) -> Running:
    """End a way back that takes too long; return the phase as it is now."""
    entry = phase.round.entry
    if entry is None or transition.now - entry.since < transition.state.policy.rejoin_within:
        return phase
    return end(transition, phase, "it has not come back in time")


def complete(transition: Transition, member: Member, message: Heartbeat) -> None:
    """Note that the workers have taken the member in, once any of them reports that."""
    phase = transition.state.phase
    if not isinstance(phase, Running) or phase.round.entry is None:
        return
    round_, entry = phase.round, phase.round.entry
    index = round_.entering
    if message.entered != entry.number or not (round_.has(member.index) or member.index == index):
        return
    back = None if index is None else transition.state.members.get(index)
    if back is None:
        return
    round_ = replace(
        round_,
        left=round_.left - {entry.rank},
        changes=entry.number,
        entry=None,
        world_size=round_.world_size + round_.nprocs[entry.rank],
        pod_uids={**round_.pod_uids, back.index: back.pod_uid},
    )
    transition.enter(Trigger.MEMBER_CAME_BACK, replace(phase, round=round_))
    _tell_all(transition, round_)
    transition.reason = f"{back.pod} is back in round {round_.id}"
    transition.record(TrainingReason.CAME_BACK, f"{back.pod} is back in round {round_.id}, and no other has restarted")


def end(transition: Transition, phase: Running, reason: str) -> Running:
    """End the way back of a member, whose workers may have been taken in meanwhile: the group changes again.

    In this round it comes back by a restart of all, if what kept it from coming in was its own.
    """
    entry = phase.round.entry
    if entry is None:
        return phase
    shrink.stop_entering(transition, phase.round, reason)
    round_ = replace(phase.round, entry=None, changes=entry.number + 1, takes_back=False)
    phase = transition.update(phase, replace(phase, round=round_))
    _tell_all(transition, round_)
    return phase


def ends_with(transition: Transition, member: Member, reason: str) -> None:
    """End the way back of this member, if it is on one: it has no workers any more, or has to go."""
    phase = transition.state.phase
    if isinstance(phase, Running) and phase.round.entering == member.index:
        end(transition, phase, reason)


def _tell_all(transition: Transition, round_: Round) -> None:
    for member in transition.state.in_round():
        shrink.repeat(transition, member, round_)
