"""One decision in progress: the state as it changes, and the commands and events so far. Used inside `decide` only."""

from dataclasses import replace
from typing import TypeVar

from pytorchjob_agent.contract.first_failure import FirstFailure
from pytorchjob_agent.contract.messages import Finished, Stop, ToAgent
from pytorchjob_agent.contract.reasons import EndReason, TrainingReason
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.rounds.phases import (
    Ended,
    Phase,
    Rendezvous,
    Running,
    Stalled,
    Trigger,
    check_transition,
    name_of,
)
from pytorchjob_operator.rounds.state import Close, Command, JobEvent, JobState, Send
from pytorchjob_operator.rounds.values import End, Member

Changing = TypeVar("Changing", bound=Rendezvous | Running | Stalled)
"""A phase whose data change while it lasts."""


class Transition:
    """Collects the effects of one input. `state` is replaced, never changed in place."""

    def __init__(self, state: JobState, now: float) -> None:
        """Start with the state before the input."""
        self.state = state
        self.now = now
        self.commands: list[Command] = []
        self.events: list[JobEvent] = []
        self.reason = "nothing to do"
        self.triggers: list[Trigger] = []
        """What has moved the job to another phase, in this order."""

    def enter(self, trigger: Trigger, phase: Phase) -> None:
        """Move to another phase. Raises IllegalTransitionError if the table does not allow it."""
        check_transition(self.state.phase, trigger, phase)
        self.state = replace(self.state, phase=phase)
        self.triggers.append(trigger)

    def update(self, before: Changing, after: Changing) -> Changing:
        """Change the data of the present phase; return it as it is now.

        `before` has to be the phase that the state has now: an older copy would undo changes of this decision.
        """
        assert before is self.state.phase, f"{before} is not the present phase: {self.state.phase}"
        assert name_of(after) is name_of(before), f"{after} is another phase"
        self.state = replace(self.state, phase=after)
        return after

    def put(self, member: Member) -> Member:
        """Store a member, and return it."""
        self.state = replace(self.state, members={**self.state.members, member.index: member})
        return member

    def drop(self, index: int) -> None:
        """Remove a member."""
        members = {number: member for number, member in self.state.members.items() if number != index}
        self.state = replace(self.state, members=members)

    def send(self, member: Member, message: ToAgent) -> None:
        """Send a message to a member that is connected."""
        if member.connection is not None:
            self.commands.append(Send(member.connection, message))

    def close(self, connection: int) -> None:
        """Close a connection."""
        self.commands.append(Close(connection))

    def record(
        self, reason: TrainingReason, message: str, *, warning: bool = False, first: FirstFailure | None = None
    ) -> None:
        """Record an event."""
        self.events.append(JobEvent(reason, message, warning, first))

    def set_problem(self, reason: TrainingReason, message: str) -> None:
        """Set a problem of the job. A new one is also an event."""
        known = self.state.problems.get(reason)
        if known is None:
            self.record(reason, message, warning=True)
        if known != message:
            self.state = replace(self.state, problems={**self.state.problems, reason: message})

    def clear_problem(self, reason: TrainingReason) -> None:
        """Remove a problem that is over."""
        if reason in self.state.problems:
            problems = {known: message for known, message in self.state.problems.items() if known != reason}
            self.state = replace(self.state, problems=problems)

    def give_up(self, end: End) -> None:
        """Fail the job, and stop all agents."""
        self.enter(Trigger.GAVE_UP, Ended(end, self.state.round, self.state.front))
        self.reason = f"{end.reason}: {end.message}"
        self.record(TrainingReason.GAVE_UP, self.reason, warning=True, first=end.first)
        for member in self.state.members.values():
            self.send(member, Stop(end.exit_code, end.reason, end.message))

    def succeed(self, reason: str) -> None:
        """End the job with success, and end all agents."""
        round_, end = self.state.round, End(EndReason.SUCCEEDED, reason, ExitCode.OK, self.now)
        self.enter(Trigger.SUCCEEDED, Ended(end, round_, self.state.front))
        self.reason = reason
        members = frozenset[int]() if round_ is None else round_.members
        for member in self.state.members.values():
            if round_ is not None and member.index in members and member.done:
                self.send(member, Finished(round_.id))
            else:
                nothing = "the job has succeeded; this pod has nothing to do"
                self.send(member, Stop(ExitCode.OK, EndReason.SUCCEEDED, nothing))
