"""Takes the workers' own time from heartbeats, and reports the slow ranks of the running round. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from pytorchjob_agent.contract.messages import Heartbeat
from pytorchjob_operator.coordinator_report import SlowRank
from pytorchjob_operator.rounds import slow_ranks
from pytorchjob_operator.rounds.phases import Running
from pytorchjob_operator.rounds.slow_ranks import RoundTimes, Window, Worker
from pytorchjob_operator.rounds.state import JobState
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Member

_WHOLE = 1000
"""Shares are thousandths."""


def record(transition: Transition, member: Member, message: Heartbeat) -> None:
    """Store the windows of a member of the running round; a new round begins without any."""
    state = transition.state
    if not message.own_windows or not isinstance(state.phase, Running) or not state.phase.round.has(member.index):
        return
    round_ = state.phase.round
    known = state.own_times if state.own_times.round == round_.id else RoundTimes(round_.id)
    workers = _workers(state)
    if workers is None:
        return
    pairs = zip(message.own_windows[: member.nproc], message.own_shares, strict=False)
    windows = {(member.index, local): Window(number, share / _WHOLE) for local, (number, share) in enumerate(pairs)}
    found = slow_ranks.add(known, windows, workers, transition.now)
    for worker, window in windows.items():
        if window.number > slow_ranks.WARM_UP and known.windows.get(worker) != window:
            found = slow_ranks.with_places(found, worker, _places(message, worker[1]))
    if found is not state.own_times:
        transition.state = replace(state, own_times=found)


def report(state: JobState, now: float) -> tuple[SlowRank, ...] | None:
    """Return the slow ranks of the running round, by rank; None: nothing runs, or they are not known yet."""
    phase, own = state.phase, state.own_times
    if not isinstance(phase, Running):
        return None
    if phase.round.world_size == 1:
        return ()
    ranks = dict(_ranks(state))
    if own.round != phase.round.id or not own.known or not ranks.keys() >= own.slow.keys():
        return None
    slow = sorted((ranks[worker], worker, since) for worker, since in own.slow.items())
    return tuple(
        SlowRank(rank, state.members[worker[0]].pod, own.percent(worker), max(now - since, 0.0), own.own_work(worker))
        for rank, worker, since in slow
    )


def _places(message: Heartbeat, local: int) -> dict[str, float]:
    found = ((name.partition(" "), part) for name, part in message.own_places.items())
    return {place: min(max(part / _WHOLE, 0.0), 1.0) for (rank, _, place), part in found if rank == str(local)}


def _workers(state: JobState) -> int | None:
    """Return how many workers the round has; None if some of its members are not known yet."""
    round_ = state.round
    if round_ is None or None in round_.present:
        return None
    return round_.world_size or len(dict(_ranks(state)))


def _ranks(state: JobState) -> Iterator[tuple[Worker, int]]:
    """Yield the workers of the round's known members, with their ranks."""
    rank = 0
    for place, index in enumerate(state.round.ranks if state.round is not None else ()):
        if state.round is not None and place in state.round.left:
            if not state.round.nprocs:
                return
            rank += state.round.nprocs[place]
            continue
        member = None if index is None else state.members.get(index)
        if member is None:
            return  # the ranks behind it are unknown
        for local in range(member.nproc):
            yield (member.index, local), rank + local
        rank += member.nproc
