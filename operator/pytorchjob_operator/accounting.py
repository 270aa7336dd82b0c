"""Books the time of a job: what each decision of the coordinator shows of it, for the ledger (`goodput`). Pure.

It looks at decisions from outside: `rounds` knows nothing of it. A heartbeat comes often and mostly changes no class:
only a new furthest step, or another phase, is a sight. Until the first agent is heard the plan books the time, as it
sees the pods.
"""

from dataclasses import dataclass, replace
from typing import assert_never

from pytorchjob_agent.contract.messages import Draining, Failed, Heartbeat, Resumed
from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.interruptions import InterruptionKind
from pytorchjob_operator.goodput.ledger import Interruption, JobStage, Ledger, Sight, StepsSeen, advance
from pytorchjob_operator.goodput.script_saves import SavesSeen
from pytorchjob_operator.rounds.failures import stored_failure
from pytorchjob_operator.rounds.phases import Ended, Origin, Rendezvous, Running, Stalled, Trigger, Waiting
from pytorchjob_operator.rounds.state import Decision, Input, JobState, MessageReceived
from pytorchjob_operator.rounds.values import Failure, Member, Round

_INTERRUPTS = (Trigger.WORKERS_FAILED, Trigger.WORKERS_STOPPED, Trigger.MEMBER_LOST)
"""What ends a running round without a plan."""
_TRAINED = (TimeClass.RUNNING, TimeClass.WASTED_PROGRESS_FROM_DISRUPTION)


@dataclass(frozen=True, slots=True)
class Account:
    """The time of one job, as far as the coordinator books it."""

    ledger: Ledger | None = None
    """None: the operator has not synced it."""
    lacks_pods: bool = False
    """True if fewer pods have a node than a round needs."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What a message of an agent tells about the time of its workers."""

    step: int | None = None
    """The furthest step of the running round."""
    steps: StepsSeen | None = None
    """When that member did its steps."""
    goes_back: bool = False
    """True if the observed steps of a member went back within the round."""
    workers_age: float | None = None
    """Seconds since the workers of the round were started, if nothing has shown it before."""
    ended_age: float | None = None
    """Seconds since the workers of the round before ended, if this coordinator did not see their end."""
    failure: Interruption | None = None
    """How a round failed whose end this coordinator did not see."""
    saves: SavesSeen | None = None
    """The script's own saves in the running round, if they are more than is known."""


_NOTHING = _Told()


def synced(account: Account, state: JobState, ledger: Ledger | None, lacks_pods: bool, now: float) -> Account:
    """Return the account before a sync is decided on: its ledger is the plan's until an agent is heard.

    `ledger` has the plan's clock, `now` is the coordinator's.
    """
    kept = account.ledger
    if ledger is not None and (kept is None or isinstance(state.phase, Waiting)):
        kept = ledger.moved(now - ledger.until)
    if kept is not None and lacks_pods != account.lacks_pods:
        kept = advance(kept, Sight(_stage(state, kept, lacks_pods)), now)
    return Account(kept, lacks_pods)


def observe(account: Account, before: JobState, input_: Input, decision: Decision, now: float) -> Account:
    """Return the account after a decision: the time up to now is booked, and what it was spent on."""
    ledger, after, triggers = account.ledger, decision.state, decision.triggers
    if ledger is None:
        return account
    told = _read(ledger, before, input_, now)
    if after.phase is before.phase and told == _NOTHING:
        return account
    sight = Sight(
        _stage(after, ledger, account.lacks_pods),
        told.step,
        told.steps,
        goes_back=told.goes_back,
        begins=Trigger.ROUND_FORMED in triggers,
        adopts=Trigger.ROUND_REPORTED in triggers,
        interruption=_interruption(before, decision, now) or _gone_on(before, input_, decision, now),
        cause=InterruptionKind.POD_LOST if _turns_out_lost(before, after) else None,
        missed=_missed(before, decision),
        ended_age=told.ended_age,
        failure=told.failure or _found_later(before, after, now),
        workers_age=told.workers_age,
        saves=told.saves,
        over=_over(after, now) if Trigger.SUCCEEDED in triggers else 0.0,
    )
    return replace(account, ledger=advance(ledger, sight, now))


def _read(ledger: Ledger, before: JobState, input_: Input, now: float) -> _Told:
    """Return what an input tells, if it comes from a member of the running or last round."""
    if not isinstance(input_, MessageReceived) or input_.index is None:
        return _NOTHING
    member, round_ = before.members.get(input_.index), before.round
    if member is None or member.connection != input_.connection or isinstance(before.phase, Ended):
        return _NOTHING
    match input_.message:
        case Heartbeat() as message if isinstance(before.phase, Running) and before.phase.round.has(member.index):
            return _heartbeat(ledger, member, message)
        case Resumed(round=id_, age=age) if round_ is not None and round_.has(member.index) and age >= 0:
            known = id_ == round_.id or id_.follows(round_.id)
            return _Told(ended_age=age) if known else _NOTHING
        case Failed() as message if isinstance(before.phase, Running):
            # The round failed after which the members agreed on the running one.
            running = before.phase.round
            failure = stored_failure(message, 0, now, 0)
            earlier = running.adopted and running.id.follows(message.round) and failure is not None
            return _Told(failure=_failed((failure,), now)) if earlier and failure is not None else _NOTHING
    return _NOTHING


def _heartbeat(ledger: Ledger, before: Member, message: Heartbeat) -> _Told:
    """Return what a member of the running round has done; `before` is the member before this message."""
    reported = message.step is not None
    step, earlier = (message.step, before.step) if reported else (message.shown_step, before.shown.step)
    saves = _saves(message)
    told = _Told(
        workers_age=message.workers_age if ledger.regrouped and message.workers_age >= 0 else None,
        saves=saves if ledger.script.shows_more(saves, step) else None,
    )
    if step is None or step == earlier:
        return told
    if ledger.step is None or step > ledger.step:
        return replace(told, step=step, steps=StepsSeen(message.first_step, message.first_age, message.step_age))
    return replace(told, goes_back=not reported and earlier is not None and step < earlier <= ledger.step)


def _saves(message: Heartbeat) -> SavesSeen:
    return SavesSeen(message.saves, message.save_seconds, message.saved_step, message.load_seconds)


def _over(after: JobState, now: float) -> float:
    """Return for how long the last workers of the round have been done; 0 if one of these times is unknown."""
    round_, ended = after.round, [member.done_at for member in after.in_round()]
    known = [at for at in ended if at is not None]
    if round_ is None or len(known) < len(round_.present):
        return 0.0
    return max(now - max(known), 0.0)


def _missed(before: JobState, decision: Decision) -> int:
    """Return how many restarts after failures this coordinator did not see, and has just heard of."""
    learns = {Trigger.ROUND_REPORTED, Trigger.ROUND_OVER}.intersection(decision.triggers)
    return max(decision.state.restarts - before.restarts, 0) if learns else 0


def _found_later(before: JobState, after: JobState, now: float) -> Interruption | None:
    """Return how the last round failed, if its end was known before its failures."""
    was, now_is = before.phase, after.phase
    if not isinstance(was, Rendezvous) or not isinstance(now_is, Rendezvous) or was.failures:
        return None
    counts = now_is.origin is not Origin.OTHER and bool(now_is.failures)
    return _failed(now_is.failures, now) if counts else None


def _failed(failures: tuple[Failure, ...], now: float) -> Interruption:
    hung = any(failure.hang for failure in failures)
    began = min(failure.at - failure.idle for failure in failures)
    idle = max(failure.idle for failure in failures)
    return Interruption(max(now - began, 0.0), hung, InterruptionKind.CRASH, idle)


def _turns_out_lost(before: JobState, after: JobState) -> bool:
    """Return whether a member of the last round has turned out to be lost, after workers of others failed."""
    was, now_is = before.phase, after.phase
    if not isinstance(was, Rendezvous) or not isinstance(now_is, Rendezvous):
        return False
    return was.origin is Origin.FAILURE and now_is.origin is Origin.MAYBE_LOSS


def _stage(state: JobState, ledger: Ledger, lacks_pods: bool) -> JobStage:
    match state.phase:
        case Waiting():
            return JobStage.UNKNOWN
        case Running(planned=planned):
            return JobStage.RUNNING if planned is None else JobStage.SAVING
        case Rendezvous(last_round=last) | Stalled(last_round=last):
            if lacks_pods:
                return JobStage.WAITING_FOR_PODS
            # Of a job that had workers before a suspension, its ledger is all that is left of them.
            trained = state.trained or any(ledger.seconds.get(each) for each in _TRAINED)
            return JobStage.STARTING if last is None and not trained else JobStage.RESTARTING
        case Ended():
            return JobStage.OVER
    assert_never(state.phase)


def _interruption(before: JobState, decision: Decision, now: float) -> Interruption | None:
    """Return how the running round was interrupted; None if it still runs, or ended by a plan or with success."""
    phase, trigger = before.phase, next(iter(decision.triggers), None)
    if not isinstance(phase, Running) or trigger not in _INTERRUPTS:
        return None
    after = decision.state.phase
    failures = after.failures if isinstance(after, Rendezvous) else ()
    known = [*(failure.at - failure.idle for failure in failures), *_last_signs(phase.round, before, decision.state)]
    hung = any(failure.hang for failure in failures)
    cause = (
        InterruptionKind.POD_LOST if trigger is Trigger.MEMBER_LOST else InterruptionKind.CRASH if failures else None
    )
    return Interruption(max(now - min(known, default=now), 0.0), hung, cause)


def _gone_on(before: JobState, input_: Input, decision: Decision, now: float) -> Interruption | None:
    """Return how the training stood still before its round went on without a member; None: it did not."""
    phase = before.phase
    if not isinstance(phase, Running) or Trigger.MEMBER_LEFT not in decision.triggers:
        return None
    match input_:
        case MessageReceived(message=Draining()):
            return None
        case MessageReceived(message=Failed() as message):
            failure = stored_failure(message, 0, now, 0)
            return None if failure is None else _failed((failure,), now)
        case _:
            last = min(_last_signs(phase.round, before, decision.state), default=now)
            return Interruption(max(now - last, 0.0), cause=InterruptionKind.POD_LOST)


def _last_signs(round_: Round, before: JobState, after: JobState) -> list[float]:
    """Return when the members that this decision gave up were last known to live."""
    lost = (before.members[index] for index in round_.members & before.members.keys() - after.members.keys())
    return [max(member.heard_at, member.peer_heard_at or 0.0) for member in lost]
