"""The report of a rendezvous that waits, and its end after the join timeout."""

from collections.abc import Sequence
from dataclasses import replace

from pytorchjob_agent.contract.messages import Hold, Stop
from pytorchjob_agent.contract.reasons import EndReason, TrainingReason
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.rounds import awaited
from pytorchjob_operator.rounds.phases import LastWorkers, Rendezvous, Stalled, Trigger
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Member

REPORT_FIRST_SECONDS = 5.0
"""After this time waiting members first receive the reason for waiting."""
REPORT_EVERY_SECONDS = 15.0
"""How often they receive it again."""


def _is_late(transition: Transition, phase: Rendezvous) -> bool:
    return transition.now - phase.since >= transition.state.policy.join_timeout


def report_due(transition: Transition, phase: Rendezvous) -> bool:
    """True if the waiting members receive a reason now."""
    due = phase.since + REPORT_FIRST_SECONDS if phase.reported_at is None else phase.reported_at + REPORT_EVERY_SECONDS
    return transition.now >= due or _is_late(transition, phase)


def keep_waiting(transition: Transition, phase: Rendezvous, waiting: Sequence[Member]) -> None:
    """Report what the rendezvous waits for: soon at first, then now and then. Give up after the join timeout."""
    if not report_due(transition, phase):
        return
    words = _why_waiting(transition, phase, waiting)
    if _is_late(transition, phase):
        _time_out(transition, phase, waiting, words)
        return
    transition.update(phase, replace(phase, reported_at=transition.now))
    transition.set_problem(TrainingReason.WAITING, words)
    for member in waiting:
        transition.send(member, Hold(words))


def _time_out(transition: Transition, phase: Rendezvous, waiting: Sequence[Member], words: str) -> None:
    """Stop the waiting agents. Their containers may start again, and then another rendezvous begins."""
    message = f"the rendezvous timed out after {transition.state.policy.join_timeout:g} s: {words}"
    transition.set_problem(TrainingReason.WAITING, message)
    for member in waiting:
        transition.send(member, Stop(ExitCode.RENDEZVOUS, EndReason.TIMEOUT, message))
        transition.put(replace(member, port=None))
    workers = min(phase.workers, LastWorkers.STOPPED)  # who trains a later round has had the time to say so
    transition.enter(Trigger.TIMED_OUT, Stalled(transition.now, message, phase.last_round, workers))
    transition.reason = message


def _why_waiting(transition: Transition, phase: Rendezvous, waiting: Sequence[Member]) -> str:
    policy, state = transition.state.policy, transition.state
    if transition.now < phase.not_before:
        return f"the next round starts in {phase.not_before - transition.now:.0f} s: {phase.reason}"
    if awaited.is_enough(transition, phase, waiting) and phase.last_round is not None:
        doubt = "the coordinator hears none of its members, and their pods still run"
        if any(member.connection is not None for member in transition.state.in_round()):
            doubt = "its members have not stopped their workers yet"
        return f"round {phase.last_round.id} may still train: {doubt}"
    missing = awaited.missing_pods(transition, waiting)
    shown = [
        f"{state.pods[index].pod} ({state.pods[index].problem or _why_missing(transition, index)})"
        for index in missing[:3]
    ]
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    pods = f"; waiting for {', '.join(shown)}{more}" if shown else "; the job has no other pods"
    at_least = "at least " if policy.elastic else ""
    return f"{len(waiting)} of {at_least}{policy.min_members} members are ready{pods}"[:1000]


def _why_missing(transition: Transition, index: int) -> str:
    """Return why a replica with a healthy pod does not wait with the others."""
    member, silent = transition.state.members.get(index), transition.state.silent.get(index)
    if member is None and silent is not None:
        return f"its agent has sent nothing for {transition.now - silent.since:.0f} s"
    if member is None:
        return "its agent has not connected"
    if member.connection is None:
        return "its agent has lost its connection"
    return "it is terminating" if member.leaving else "it has not stopped its workers yet"
