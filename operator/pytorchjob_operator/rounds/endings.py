"""The two ends of a job's training: success, or a failure that no other round can help."""

from pytorchjob_agent.contract.messages import Finished, Stop
from pytorchjob_agent.contract.reasons import EndReason, TrainingReason
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.rounds.phases import Ended, Trigger
from pytorchjob_operator.rounds.summary import most_advanced
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import End


def give_up(transition: Transition, end: End) -> None:
    """Fail the job, and stop all agents."""
    transition.enter(Trigger.GAVE_UP, Ended(end, transition.state.round, most_advanced(transition.state)))
    transition.reason = f"{end.reason}: {end.message}"
    transition.record(TrainingReason.GAVE_UP, transition.reason, warning=True, first=end.first)
    for member in transition.state.members.values():
        transition.send(member, Stop(end.exit_code, end.reason, end.message))


def succeed(transition: Transition, reason: str) -> None:
    """End the job with success, and end all agents."""
    round_ = transition.state.round
    end, front = End(EndReason.SUCCEEDED, reason, ExitCode.OK, transition.now), most_advanced(transition.state)
    transition.enter(Trigger.SUCCEEDED, Ended(end, round_, front))
    transition.reason = reason
    members = frozenset[int]() if round_ is None else round_.members
    for member in transition.state.members.values():
        if round_ is not None and member.index in members and member.done:
            transition.send(member, Finished(round_.id))
        else:
            transition.send(
                member, Stop(ExitCode.OK, EndReason.SUCCEEDED, "the job has succeeded; this pod has nothing to do")
            )
