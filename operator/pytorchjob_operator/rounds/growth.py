"""When a running round restarts with members that wait beside it. Pure.

Workers that save on request are asked to save first. Others lose the steps since their last save, so a round whose
script saves by itself grows right after its next save. It does not wait for a save that seems to come no more.
"""

from dataclasses import replace

from pytorchjob_agent.contract.messages import Heartbeat
from pytorchjob_agent.contract.reasons import ShrinkState
from pytorchjob_operator.rounds import shrink
from pytorchjob_operator.rounds.phases import Running
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Member, Round, SavePace

GROW_SECONDS, _MOST_GROW_SECONDS = 1.0, 60.0
"""How long a round that can grow waits for more new members after the first one, at least and at most. Between them: as
long as a round takes to begin, so that one start is enough for members that come one after another."""
SAVE_SETTLES = 2.0
"""Seconds after a save in which other ranks may end theirs."""
MOST_SECONDS = 1800.0
"""How long a round waits for its next save at most."""
_LATE = 2
"""A save that has not come in so many times the last interval comes no more."""


def record_save(transition: Transition, member: Member, message: Heartbeat, round_: Round) -> None:
    """Note that the script has saved by itself; `member` is as before this heartbeat."""
    if message.saves is None or message.saves <= member.saves:
        return
    transition.put(replace(transition.state.members[member.index], saves=message.saves))
    now, pace = transition.now, transition.state.save_pace
    before = round_.started_at if pace is None else max(pace.at, round_.started_at)
    interval = pace.interval if pace is not None and now - pace.at < SAVE_SETTLES else now - before
    transition.state = replace(transition.state, save_pace=SavePace(now, interval))


def newcomers(transition: Transition, phase: Running) -> tuple[Running, list[str]]:
    """Return the phase as it is now, and the pods with which the round is to restart; none: nothing is due."""
    state, round_ = transition.state, phase.round
    if phase.growing_since is None:
        return phase, []
    gathers = min(max(state.round_cost, GROW_SECONDS), _MOST_GROW_SECONDS)
    if transition.now - phase.growing_since < gathers and _more_may_come(transition, round_):
        return phase, []
    new = [member.pod for member in state.members.values() if member.waiting and not round_.has(member.index)]
    if not new or len(round_.present) >= state.policy.max_members:
        phase = transition.update(phase, replace(phase, growing_since=None))
        return _gathered(transition, phase, None), []
    gathered_at = transition.now if phase.gathered_at is None else phase.gathered_at
    phase = _gathered(transition, phase, gathered_at)
    return phase, [] if awaits_save(transition, round_, gathered_at) else new


def _gathered(transition: Transition, phase: Running, at: float | None) -> Running:
    """Note since when all newcomers are there; the workers of a round that goes on without some stop at a save then."""
    changes = (at is None) is not (phase.gathered_at is None)
    phase = transition.update(phase, replace(phase, gathered_at=at))
    for member in transition.state.in_round() if changes else ():
        shrink.repeat(transition, member, phase.round)
    return phase


def awaits_save(transition: Transition, round_: Round, since: float) -> bool:
    """True if the round's next save comes by itself, and soon; `since`: a save after that counts."""
    pace, now = transition.state.save_pace, transition.now
    for member in transition.state.in_round():
        if member.shrinks == ShrinkState.HELD or may_save(round_, member):
            return False
    if round_.left:
        return now - since < transition.state.policy.rejoin_within  # their workers stop behind their next save
    if pace is None:
        return False
    if pace.at >= since:
        return now - pace.at < SAVE_SETTLES
    return now - max(pace.at, round_.started_at) < min(_LATE * pace.interval, MOST_SECONDS)


def may_save(round_: Round, member: Member) -> bool:
    """True unless its workers do not save on request; in an adopted round the first heartbeat reports that."""
    return member.cooperative or (round_.adopted and member.replied_at is None)


def _more_may_come(transition: Transition, round_: Round) -> bool:
    """True if a healthy pod of the job neither takes part nor waits yet."""
    state = transition.state
    there = {member.index for member in state.members.values() if member.waiting}
    there.update(index for index in round_.present if index is not None)
    return any(index not in there and not pod.succeeded and not pod.problem for index, pod in state.pods.items())
