"""Why members keep no checkpoints in memory, as their heartbeats report it: one problem of the job. Pure."""

from dataclasses import replace

from pytorchjob_agent.contract.messages import Heartbeat
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Member


def record(transition: Transition, member: Member, message: Heartbeat) -> None:
    """Store what a member reports, and update the job's problem if it changes."""
    if message.checkpoint_problem != member.checkpoint_problem:
        known = transition.state.members[member.index]
        transition.put(replace(known, checkpoint_problem=message.checkpoint_problem))
        update(transition)


def update(transition: Transition) -> None:
    """Set or clear the problem; members that are gone do not count."""
    members = sorted(transition.state.members.items())
    found = [f"{member.pod}: {member.checkpoint_problem}" for _, member in members if member.checkpoint_problem]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        transition.set_problem(TrainingReason.CHECKPOINTS, f"{found[0]}{more}")
    else:
        transition.clear_problem(TrainingReason.CHECKPOINTS)
