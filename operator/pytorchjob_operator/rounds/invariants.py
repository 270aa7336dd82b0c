"""What must hold after every decision. Pure; the coordinator checks it in production as the tests do.

A violated invariant is a defect of this package. The coordinator then sends nothing, stalls the job with the reason,
and logs the full state: a stalled job is better than two groups that train at once.
"""

from collections.abc import Iterator

from pytorchjob_agent.contract.messages import Assigned
from pytorchjob_operator.rounds.phases import Ended, Rendezvous, Running, Stalled, Waiting
from pytorchjob_operator.rounds.state import Decision, JobState, Send
from pytorchjob_operator.rounds.values import Round


def find_violations(before: JobState, decision: Decision) -> list[str]:
    """Return a sentence for each violated invariant.

    Members join a rendezvous one by one. Checking all of them each time would take a second for 2,000 members, so they
    are checked when the rendezvous begins, and when it ends: before anything that it decided is sent.
    """
    after = decision.state
    found = [*_never_back(before, after), *_ends_are_final(before, after), *_assignments(decision)]
    joining = isinstance(before.phase, Rendezvous) and isinstance(after.phase, Rendezvous)
    if after.phase is not before.phase and not joining:
        found += [*_round(after), *_members(after)]
    return found


def _never_back(before: JobState, after: JobState) -> Iterator[str]:
    """Counters and round ids never decrease."""
    if after.restarts < before.restarts:
        yield f"the restarts went back from {before.restarts} to {after.restarts}"
    if after.requests < before.requests:
        yield f"the checkpoint requests went back from {before.requests} to {after.requests}"
    old, new = before.round, after.round
    if old is not None and new is None:
        yield f"round {old.id} is forgotten"
    if old is not None and new is not None and new.id < old.id:
        yield f"round {new.id} follows round {old.id}"


def _ends_are_final(before: JobState, after: JobState) -> Iterator[str]:
    if isinstance(before.phase, Ended) and after.phase != before.phase:
        yield "a job that had ended goes on"


def _assignments(decision: Decision) -> Iterator[str]:
    """The assignments of one decision name the same round, sizes and store: those of the running round."""
    sent = [
        (command.connection, command.message)
        for command in decision.commands
        if isinstance(command, Send) and isinstance(command.message, Assigned) and not command.message.enters
    ]
    if not sent:
        return
    phase = decision.state.phase
    if not isinstance(phase, Running):
        yield "members are assigned to a round that does not run"
        return
    worlds = {
        (item.round, item.size, item.world_size, item.master_address, item.master_port, item.restarts)
        for _, item in sent
    }
    if len(worlds) != 1:
        yield f"members are assigned to {len(worlds)} different worlds"
    first = sent[0][1]
    if first.round != phase.round.id or first.size != len(phase.round.ranks):
        yield f"members are assigned to round {first.round} of {first.size}, but round {phase.round.id} runs"
    if [item.rank for _, item in sent] != list(range(first.size)):
        yield f"the assigned ranks are not 0 to {first.size - 1}"
    if len({connection for connection, _ in sent}) != len(sent):
        yield "two ranks are assigned on one connection"


def _round(state: JobState) -> Iterator[str]:
    phase = state.phase
    match phase:
        case Running(round=round_):
            yield from _ranks(round_)
            if not round_.adopted and None in round_.ranks:
                yield f"round {round_.id} has a rank without a member"
            idle = [
                member.pod
                for index in round_.present
                if index is not None
                and (member := state.members.get(index)) is not None
                and member.port is not None
                and index not in round_.done
            ]
            if idle:
                yield f"{', '.join(idle[:3])} wait for a round although round {round_.id} runs with them"
        case Rendezvous(last_round=last) | Stalled(last_round=last) | Ended(last_round=last):
            if last is not None:
                yield from _ranks(last)
        case Waiting():
            pass


def _ranks(round_: Round) -> Iterator[str]:
    known = [index for index in round_.ranks if index is not None]
    if not round_.ranks:
        yield f"round {round_.id} has no ranks"
    if len(known) != len(set(known)):
        yield f"a member has two ranks in round {round_.id}: {round_.ranks}"
    if not round_.left <= set(range(len(round_.ranks))):
        yield f"ranks have left round {round_.id} that it did not have: {sorted(round_.left)}"
    if 0 in round_.left:
        yield f"rank 0 has left round {round_.id}, whose store it hosts"
    if round_.entry is not None and (round_.entry.rank not in round_.left or round_.entry.number <= round_.changes):
        yield f"{round_.entry} does not fit round {round_.id}, which {sorted(round_.left)} have left"


def _members(state: JobState) -> Iterator[str]:
    connections = [member.connection for member in state.members.values() if member.connection is not None]
    if len(connections) != len(set(connections)):
        yield "two members share a connection"
    for index, member in state.members.items():
        if member.index != index:
            yield f"member {member.index} is stored as {index}"
        if member.port is not None and member.connection is None:
            yield f"{member.pod} waits for a round without a connection"
