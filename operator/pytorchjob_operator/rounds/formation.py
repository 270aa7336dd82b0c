"""Forms a round: chooses members, gives ranks, assigns.

Ranks follow the replicas' indices, so that a surviving member keeps its place among the others.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from pytorchjob_agent.contract.messages import Assigned, Hold, RoundId
from pytorchjob_agent.contract.reasons import EndReason, TrainingReason
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.rounds import checkpoint_problems, past_failures, versions
from pytorchjob_operator.rounds.phases import Rendezvous, Running, Trigger
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import End, Member, Round, count


def form(transition: Transition, phase: Rendezvous, waiting: Sequence[Member]) -> None:
    """Start a round with the best of the waiting members, unless their versions differ too much."""
    chosen = _choose(transition, phase, waiting)
    if not _compatible(transition, chosen):
        return
    id_ = _next_id(transition)
    round_ = Round(
        id_,
        tuple(member.index for member in chosen),
        transition.now,
        world_size=sum(member.nproc for member in chosen),
        pod_uids={member.index: member.pod_uid for member in chosen},
        nprocs=tuple(member.nproc for member in chosen),
        restarts=transition.state.restarts,
        store_port=chosen[0].port or 1,
    )
    transition.enter(Trigger.ROUND_FORMED, Running(round_))
    transition.state = replace(transition.state, next_number=id_.number + 1)
    _assign_all(transition, round_, chosen, phase.reason)
    _start(transition, chosen)
    members = round_.members
    for member in waiting:
        if member.index not in members:
            transition.send(member, Hold(spare_reason(round_), round_.id))
    checkpoint_problems.update(transition)
    transition.clear_problem(TrainingReason.WAITING)
    transition.clear_problem(TrainingReason.PEER_UNREACHABLE)
    size = f"{count(len(chosen), 'member')} and {count(round_.world_size, 'worker')}"
    transition.reason = f"round {id_} starts with {size}"
    transition.record(TrainingReason.ROUND_STARTED, f"Round {id_} starts with {size}")


def spare_reason(round_: Round) -> str:
    """Return why a member waits beside a round that is full."""
    return f"round {round_.id} has its maximum of {count(len(round_.ranks), 'member')}; this pod waits as a spare"


def _choose(transition: Transition, phase: Rendezvous, waiting: Sequence[Member]) -> list[Member]:
    """Prefer members of the last round, then low indices. The result is in the order of indices."""
    last = phase.last_round
    former = frozenset[int]() if last is None else last.members
    preferred = sorted(waiting, key=lambda member: (member.index not in former, member.index))
    return sorted(preferred[: transition.state.policy.max_members], key=lambda member: member.index)


def _compatible(transition: Transition, chosen: Sequence[Member]) -> bool:
    """Set the problems of versions and clocks that differ. False: the difference ends the job."""
    unequal, clocks = versions.unequal_versions(chosen), versions.unequal_clocks(chosen)
    for reason, message in ((TrainingReason.UNEQUAL_VERSIONS, unequal), (TrainingReason.CLOCKS_DIFFER, clocks)):
        if message is None:
            transition.clear_problem(reason)
        else:
            transition.set_problem(reason, message)
    if unequal is None or all(member.tolerates_versions for member in chosen):
        return True
    transition.give_up(End(EndReason.VERSIONS, unequal, ExitCode.PREFLIGHT, transition.now))
    return False


def _next_id(transition: Transition) -> RoundId:
    """Return an id after every known round: terms start again if the Lease or its namespace is deleted."""
    state = transition.state
    own = RoundId(state.term, state.next_number)
    last = state.last_round
    return own if last is None or own > last else last.next()


def _assign_all(transition: Transition, round_: Round, chosen: Sequence[Member], reason: str) -> None:
    """Send each member its place. Member 0 hosts the round's store."""
    past = past_failures.encode(transition.state.history, transition.now)
    pods = transition.state.pods
    master, first_ranks = chosen[0], accumulate([0, *(member.nproc for member in chosen[:-1])])
    for rank, (member, first_rank) in enumerate(zip(chosen, first_ranks, strict=True)):
        neighbour = chosen[(rank + 1) % len(chosen)]
        transition.send(
            member,
            Assigned(
                round=round_.id,
                rank=rank,
                size=len(chosen),
                first_rank=first_rank,
                world_size=round_.world_size,
                master_address=master.address,
                master_port=master.port or 1,
                restarts=transition.state.restarts,
                past_failures=past,
                neighbour="" if neighbour is member else f"{neighbour.address}:{neighbour.port}",
                reason=reason,
                zone=pods[member.index].zone if member.index in pods else "",
            ),
        )


def _start(transition: Transition, chosen: Sequence[Member]) -> None:
    started = {member.index: member.assigned() for member in chosen}
    transition.state = replace(transition.state, members={**transition.state.members, **started})
