"""A running round goes on without a lost member: whether it may, and what follows. Pure.

The workers of the others keep their processes, and repeat the operation that the lost member kept from ending
(`workers/startup/pytorchjob_shrink`). A round is still the answer wherever it is not certain that going on is right.
The lost member, or the pod that replaces it, waits beside the round; `growth` brings it in at the next save.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate

from pytorchjob_agent.contract.messages import Restart, Shrink
from pytorchjob_agent.contract.reasons import ShrinkState, TrainingReason
from pytorchjob_agent.contract.root_cause import doubt
from pytorchjob_operator.rounds import budget, past_failures
from pytorchjob_operator.rounds.phases import Running, Trigger
from pytorchjob_operator.rounds.state import JobState
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Failure, Member, Round, count


def outlook(state: JobState) -> ShrinkState:
    """Return READY if a member could be lost now, other than the one with rank 0, or why not."""
    if not isinstance(state.phase, Running):
        return ShrinkState.NOT_READY if state.policy.survive else ShrinkState.OFF
    found = _of_round(state, state.phase)
    return of_members(state, state.phase.round.members) if found is ShrinkState.READY else found


def _of_round(state: JobState, phase: Running) -> ShrinkState:
    if not state.policy.survive:
        return ShrinkState.OFF
    if phase.planned is not None or phase.round.done:
        return ShrinkState.ENDING
    if not phase.round.nprocs:  # adopted: not all of its members are known
        return ShrinkState.NOT_READY
    if len(phase.round.present) <= state.policy.min_members:
        return ShrinkState.TOO_FEW
    return ShrinkState.READY


def state_of(state: JobState, phase: Running, lost: Member, failure: Failure | None = None) -> ShrinkState:
    """Return READY if the others go on without this member, or why they do not."""
    round_ = phase.round
    if (found := _of_round(state, phase)) is not ShrinkState.READY:
        return found
    if round_.ranks[0] == lost.index:
        return ShrinkState.FIRST_RANK
    if lost.saves:
        return ShrinkState.SAVES
    if failure is not None and not _is_clear(failure):
        return ShrinkState.UNCLEAR
    return of_members(state, round_.members - {lost.index})


def _is_clear(failure: Failure) -> bool:
    """Return whether nothing but this rank can be the cause: others may hang, or fail, because of one elsewhere."""
    return not failure.also and not doubt(failure.evidence) and (failure.stopped or not failure.hang)


def of_members(state: JobState, indices: Iterable[int]) -> ShrinkState:
    """Return READY if the workers of all these members can go on, or why not."""
    for index in indices:
        member = state.members.get(index)
        if member is None or member.connection is None or member.leaving or member.port is not None:
            return ShrinkState.SEVERAL
        if member.shrinks == ShrinkState.HELD:
            return ShrinkState.ENDING
        if member.shrinks not in (ShrinkState.READY, ShrinkState.BROKEN):
            return _read(member.shrinks)
    return ShrinkState.READY


def _read(reported: str) -> ShrinkState:
    try:
        return ShrinkState(reported)
    except ValueError:  # empty, or of a newer agent
        return ShrinkState.NOT_READY


def go_on(transition: Transition, phase: Running, lost: Member, reason: str, failure: Failure | None = None) -> bool:
    """Let the others go on without this member; False: a new round has to begin, and an event says why."""
    found = state_of(transition.state, phase, lost, failure)
    if found is ShrinkState.READY and failure is not None and not _count(transition, failure):
        found = ShrinkState.POLICY
    if found is not ShrinkState.READY:
        if found is not ShrinkState.OFF:
            words = (
                f"All workers of round {phase.round.id} restart, because they cannot go on without {lost.pod}: {found}"
            )
            transition.record(TrainingReason.CANNOT_GO_ON, words)
        return False
    round_ = phase.round
    rank = round_.ranks.index(lost.index)
    changes = 1 + (round_.changes if round_.entry is None else round_.entry.number)
    stop_entering(transition, round_, f"round {round_.id} changes otherwise")
    size = round_.world_size - round_.nprocs[rank]
    round_ = replace(round_, left=round_.left | {rank}, world_size=size, changes=changes, entry=None)
    transition.enter(Trigger.MEMBER_LEFT, replace(phase, round=round_))
    if (known := transition.state.members.get(lost.index)) is not None:
        known = transition.put(replace(known, shrinks=""))
        if failure is not None:
            repeat(transition, known, round_, reason)  # it reports its failure to no other coordinator
    for member in transition.state.in_round():
        if member.shrinks == ShrinkState.BROKEN:  # another lost connection has to be reported anew
            member = transition.put(replace(member, shrinks=ShrinkState.READY))
        repeat(transition, member, round_, reason)
    transition.reason = f"round {round_.id} goes on with {count(len(round_.present), 'member')}: {reason}"
    transition.record(TrainingReason.WENT_ON, f"Round {transition.reason.removeprefix('round ')}", warning=True)
    return True


def _count(transition: Transition, failure: Failure) -> bool:
    """Count the failure like one that ends its round; False if the policy ends the job with it."""
    state = transition.state
    verdict = budget.judge(state, [failure], transition.now)
    if verdict.end is not None:
        return False
    history = budget.remember(state.history, verdict.restart)
    transition.state = replace(state, history=history, restarts=state.restarts + 1)
    transition.record(verdict.restart.reason, verdict.message, warning=True, first=verdict.restart.first)
    return True


def stop_entering(transition: Transition, round_: Round, reason: str) -> None:
    """Kill the workers of a member that is on its way back into this round (`entry`)."""
    index = round_.entering
    member = None if index is None else transition.state.members.get(index)
    if member is not None and member.port is None:
        transition.send(member, Restart(round_.id, reason, caused=True))


def repeat(transition: Transition, member: Member, round_: Round, reason: str = "") -> None:
    """Tell a member who has left its round, if anybody has, and whether they wait to come back.

    Its agent knows what it has done already.
    """
    if not round_.changes or not round_.nprocs:
        return
    members, ends = tuple(sorted(round_.left)), [0, *accumulate(round_.nprocs)]
    ranks = tuple(rank for each in members for rank in range(ends[each], ends[each + 1]))
    enters = round_.entry
    entering = () if enters is None else tuple(range(ends[enters.rank], ends[enters.rank + 1]))
    past = past_failures.encode(transition.state.history, transition.now)
    phase, restarts = transition.state.phase, transition.state.restarts
    asked = any(each.cooperative for each in transition.state.in_round())  # to save: they end the round by that
    waits = isinstance(phase, Running) and phase.gathered_at is not None
    awaited = waits and not asked and enters is None
    number = round_.changes
    transition.send(member, Shrink(round_.id, number, members, ranks, restarts, past, awaited, entering, reason))
