"""Books the time of a job after each decision: what the coordinator sees of it, for the ledger (`goodput`). Pure.

A heartbeat comes often and mostly changes no class: only a new furthest step, or another phase, is a sight. Until the
first agent is heard the plan books the time, as it sees the pods.
"""

from dataclasses import replace
from typing import assert_never

from pytorchjob_agent.contract.messages import Failed, Heartbeat, Resumed
from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.interruptions import Cause
from pytorchjob_operator.goodput.ledger import Interruption, Ledger, Sight, Stage, StepsSeen, advance
from pytorchjob_operator.goodput.script_saves import SavesSeen
from pytorchjob_operator.rounds.failures import stored_failure
from pytorchjob_operator.rounds.phases import Ended, Origin, Rendezvous, Running, Stalled, Trigger, Waiting
from pytorchjob_operator.rounds.state import JobState, JobSynced
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Failure, Member, Round

_INTERRUPTS = (Trigger.WORKERS_FAILED, Trigger.WORKERS_STOPPED, Trigger.MEMBER_LOST)
"""What ends a running round without a plan."""
_TRAINED = (TimeClass.RUNNING, TimeClass.WASTED_PROGRESS_FROM_DISRUPTION)


def synced(state: JobState, job: JobSynced, now: float) -> Ledger | None:
    """Return the ledger after a sync: the plan's until an agent is heard, by this coordinator's clock."""
    if job.ledger is None or not (state.ledger is None or isinstance(state.phase, Waiting)):
        return state.ledger
    return job.ledger.moved(now - job.ledger.until)


def heartbeat(transition: Transition, before: Member, message: Heartbeat) -> None:
    """Record that a member of the running round has made progress; `before` is the member before this message."""
    ledger = transition.state.ledger
    if ledger is None or not isinstance(transition.state.phase, Running):
        return
    reported = message.step is not None
    step, earlier = (message.step, before.step) if reported else (message.shown_step, before.shown.step)
    if ledger.regrouped and message.workers_age >= 0:
        transition.workers_age = message.workers_age
    seen = _saves(message)
    if ledger.script.shows_more(seen, step):
        transition.saves = seen
    if step is None or step == earlier:
        return
    if ledger.step is None or step > ledger.step:
        transition.step = step
        transition.steps = StepsSeen(message.first_step, message.first_age, message.step_age)
    elif not reported and earlier is not None and step < earlier <= ledger.step:
        transition.goes_back = True


def _saves(message: Heartbeat) -> SavesSeen:
    return SavesSeen(message.saves, message.save_seconds, message.saved_step, message.load_seconds)


def resumed(transition: Transition, message: Resumed) -> None:
    """Record when the workers of the round before ended, of a round on which the members agreed."""
    ledger = transition.state.ledger
    if ledger is not None and message.age >= 0:
        transition.ended_age = message.age


def failed_before(transition: Transition, message: Failed) -> None:
    """Record how workers failed in the round before, after which the members agreed on the running one."""
    failure = stored_failure(message, 0, transition.now, 0)
    if failure is not None:
        transition.failure = _failed((failure,), transition.now)


def account(transition: Transition, before: JobState) -> None:
    """Book the time up to now, and what it was spent on."""
    state = transition.state
    if state.ledger is None or not _is_sight(transition, before):
        return
    sight = Sight(
        _stage(state),
        transition.step,
        transition.steps,
        goes_back=transition.goes_back,
        begins=Trigger.ROUND_FORMED in transition.triggers,
        adopts=Trigger.ROUND_REPORTED in transition.triggers,
        interruption=_interruption(transition, before),
        cause=Cause.POD_LOST if _turns_out_lost(transition.state, before) else None,
        missed=_missed(transition, before),
        ended_age=transition.ended_age,
        failure=transition.failure or _found_later(transition, before),
        workers_age=transition.workers_age,
        saves=transition.saves,
        over=_over(transition) if Trigger.SUCCEEDED in transition.triggers else 0.0,
    )
    transition.state = replace(state, ledger=advance(state.ledger, sight, transition.now))


def _over(transition: Transition) -> float:
    """Return for how long the last workers of the round have been done; 0 if one of these times is unknown."""
    round_ = transition.state.round
    ended = [member.done_at for member in transition.in_round()]
    known = [at for at in ended if at is not None]
    if round_ is None or len(known) < len(round_.ranks):
        return 0.0
    return max(transition.now - max(known), 0.0)


def _is_sight(transition: Transition, before: JobState) -> bool:
    state = transition.state
    changed = state.phase is not before.phase or state.lacks_pods != before.lacks_pods
    seen = (transition.step, transition.saves, transition.workers_age, transition.ended_age, transition.failure)
    return changed or transition.goes_back or any(value is not None for value in seen)


def _missed(transition: Transition, before: JobState) -> int:
    """Return how many restarts after failures this coordinator did not see, and has just heard of."""
    learns = {Trigger.ROUND_REPORTED, Trigger.ROUND_OVER}.intersection(transition.triggers)
    return max(transition.state.restarts - before.restarts, 0) if learns else 0


def _found_later(transition: Transition, before: JobState) -> Interruption | None:
    """Return how the last round failed, if its end was known before its failures."""
    was, now_is = before.phase, transition.state.phase
    if not isinstance(was, Rendezvous) or not isinstance(now_is, Rendezvous) or was.failures:
        return None
    counts = now_is.origin is not Origin.OTHER and bool(now_is.failures)
    return _failed(now_is.failures, transition.now) if counts else None


def _failed(failures: tuple[Failure, ...], now: float) -> Interruption:
    hung = any(failure.hang for failure in failures)
    began = min(failure.at - failure.idle for failure in failures)
    idle = max(failure.idle for failure in failures)
    return Interruption(max(now - began, 0.0), hung, Cause.CRASH, idle)


def _turns_out_lost(state: JobState, before: JobState) -> bool:
    """Return whether a member of the last round has turned out to be lost, after workers of others failed."""
    was, now_is = before.phase, state.phase
    if not isinstance(was, Rendezvous) or not isinstance(now_is, Rendezvous):
        return False
    return was.origin is Origin.FAILURE and now_is.origin is Origin.MAYBE_LOSS


def _stage(state: JobState) -> Stage:
    match state.phase:
        case Waiting():
            return Stage.UNKNOWN
        case Running(planned=planned):
            return Stage.RUNNING if planned is None else Stage.SAVING
        case Rendezvous(last_round=last) | Stalled(last_round=last):
            if state.lacks_pods:
                return Stage.WAITING_FOR_PODS
            return Stage.STARTING if last is None and not _has_trained(state) else Stage.RESTARTING
        case Ended():
            return Stage.OVER
    assert_never(state.phase)


def _has_trained(state: JobState) -> bool:
    """Return whether the job had workers before a suspension: its ledger is all that is left of them."""
    spent = state.ledger.seconds if state.ledger is not None else {}
    return state.trained or any(spent.get(each) for each in _TRAINED)


def _interruption(transition: Transition, before: JobState) -> Interruption | None:
    """Return how the running round was interrupted; None if it still runs, or ended by a plan or with success."""
    phase, trigger = before.phase, next(iter(transition.triggers), None)
    if not isinstance(phase, Running) or trigger not in _INTERRUPTS:
        return None
    now, after = transition.now, transition.state.phase
    failures = after.failures if isinstance(after, Rendezvous) else ()
    known = [*(failure.at - failure.idle for failure in failures), *_last_signs(phase.round, before, transition.state)]
    hung = any(failure.hang for failure in failures)
    cause = Cause.POD_LOST if trigger is Trigger.MEMBER_LOST else Cause.CRASH if failures else None
    return Interruption(max(now - min(known, default=now), 0.0), hung, cause)


def _last_signs(round_: Round, before: JobState, after: JobState) -> list[float]:
    """Return when the members that this decision gave up were last known to live."""
    lost = (before.members[index] for index in round_.members & before.members.keys() - after.members.keys())
    return [max(member.heard_at, member.peer_heard_at or 0.0) for member in lost]
