"""Between two rounds: stop the last one, count it, and form the next one (`formation`) once it is time (`awaited`).

A fixed job waits for all of its pods. An elastic job also starts without pods that do not come in time.
"""

from dataclasses import replace
from typing import assert_never

from pytorchjob_agent.contract.messages import Restart, RoundId, Stop
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.rounds import absent, awaited, budget, formation, shrink, waiting_report
from pytorchjob_operator.rounds.failures import leaves_because
from pytorchjob_operator.rounds.phases import (
    Ended,
    LastWorkers,
    Origin,
    Phase,
    Rendezvous,
    Running,
    Stage,
    Stalled,
    Trigger,
    Waiting,
)
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Failure, Member, PastRestart, Round

STOPPING_SECONDS = 10.0
"""How long members may take to stop their workers before an elastic round starts without them."""
DRAINED = "Drained"


def begin(
    transition: Transition,
    trigger: Trigger,
    reason: str,
    failures: tuple[Failure, ...] = (),
    *,
    caused: bool = True,
    grace: float = 0.0,
) -> None:
    """Start a rendezvous: end the running round and restart its members. `caused`: later failures do not count.

    `grace`: the seconds for which the workers may handle SIGTERM, all of them together.
    """
    phase, now = transition.state.phase, transition.now
    transition.reason = reason
    match phase:
        case Waiting():
            transition.enter(trigger, Rendezvous(now, reason, stage=Stage.COLLECTING))
        case Stalled(last_round=round_, workers=workers):
            transition.enter(trigger, Rendezvous(now, reason, round_, stage=Stage.COLLECTING, workers=workers))
        case Running(round=round_):
            origin = Origin.OTHER if caused and not failures else Origin.FAILURE
            workers = LastWorkers.STOPPED if failures else LastWorkers.MAY_TRAIN
            rendezvous = Rendezvous(now, reason, round_, failures, origin=origin, workers=workers, grace=grace)
            transition.enter(trigger, rendezvous)
        case Rendezvous():
            workers = max(phase.workers, LastWorkers.STOPPED) if failures else phase.workers
            transition.update(phase, replace(phase, failures=(*phase.failures, *failures), workers=workers))
            return
        case Ended():
            raise AssertionError("no rendezvous follows the end")
        case _:
            assert_never(phase)
    _restart_members(transition, reason, dump=any(failure.hang for failure in failures))
    check_earlier_success(transition)


def _restart_members(transition: Transition, reason: str, *, dump: bool) -> None:
    """Command the members of the last round that have not stopped yet to stop their workers."""
    phase, round_ = transition.state.phase, transition.state.round
    caused = isinstance(phase, Rendezvous) and phase.origin is Origin.OTHER
    if round_ is None:
        return
    for member in transition.state.in_round():
        if member.port is None:
            grace = grace_left(phase, transition.now)
            transition.send(member, Restart(round_.id, reason, dump=dump, caused=caused, grace=grace))
    shrink.stop_entering(transition, round_, reason)
    release_leaving(transition)


def end_workers(transition: Transition, member: Member, id_: RoundId) -> None:
    """Command a member that still runs workers of the last round to stop them."""
    phase = transition.state.phase
    reason, caused = f"round {id_} is over", False
    if isinstance(phase, Rendezvous):
        reason, caused = phase.reason, phase.origin is not Origin.FAILURE
    grace = grace_left(phase, transition.now)
    transition.send(member, Restart(id_, reason, caused=caused, grace=grace))


def grace_left(phase: Phase, now: float) -> float:
    """Return for how long the workers of the last round may still handle SIGTERM."""
    return max(phase.since + phase.grace - now, 0.0) if isinstance(phase, Rendezvous) and phase.grace else 0.0


def mark_stopped(transition: Transition, *, caused: bool = False) -> None:
    """Record that a member of the last round has no workers any more.

    `caused`: the member knows another reason than a failure, from a former coordinator or because it was cut off.
    """
    phase = transition.state.phase
    if isinstance(phase, Rendezvous):
        origin = max(phase.origin, Origin.MAYBE_LOSS) if caused else phase.origin
        transition.update(phase, replace(phase, workers=max(phase.workers, LastWorkers.STOPPED), origin=origin))


def mark_never_begun(transition: Transition) -> None:
    """Record that a member never began the last round: its assignment was lost, so the others could not connect."""
    phase = transition.state.phase
    if isinstance(phase, Rendezvous):
        transition.update(phase, replace(phase, origin=max(phase.origin, Origin.MAYBE_LOSS)))


def end_if_members_wait(transition: Transition) -> None:
    """End a running round of which a member has no workers: it joined before the other members agreed to continue."""
    phase = transition.state.phase
    if not isinstance(phase, Running):
        return
    members = transition.state.in_round()
    idle = [member for member in members if member.port is not None and member.index not in phase.round.done]
    for member in idle:  # without a port it gets a Restart below: it may have started the agreed round meanwhile
        transition.put(replace(member, port=None))
    if idle:
        pods = ", ".join(member.pod for member in idle[:3])
        begin(transition, Trigger.WORKERS_STOPPED, f"{pods} wait for a round")


def release_leaving(transition: Transition) -> None:
    """Stop the members whose pods terminate."""
    for member in transition.state.members.values():
        if member.leaving:
            transition.send(member, Stop(ExitCode.DRAINED, DRAINED, "the pod is terminating"))


def advance(transition: Transition, phase: Rendezvous) -> None:
    """Form the next round if it is time. Runs after each input but a heartbeat."""
    if _still_stopping(transition, phase):
        return
    if phase.stage is Stage.STOPPING:
        counted = _count_ended_round(transition, phase)
        if counted is None:
            return
        phase = counted
    if len(transition.state.members) < transition.state.policy.min_members and not waiting_report.report_due(
        transition, phase
    ):
        return  # the usual case while a large job starts: the code below checks every member
    waiting = [member for member in transition.state.members.values() if member.waiting]
    enough = transition.now >= phase.not_before and awaited.is_enough(transition, phase, waiting)
    if enough and not awaited.last_round_may_run(transition, phase):
        absent.remember(transition, phase.last_round)  # the next round knows nothing of these members
        formation.form(transition, phase, waiting)
    else:
        waiting_report.keep_waiting(transition, phase, waiting)


def check_earlier_success(transition: Transition) -> None:
    """End a job with success if a pod has succeeded in the last round, or in a round that is not known.

    An agent ends with success only once all members are done. A former leader saw the end, or no leader: the members
    know it from the round's store.
    """
    phase, pods = transition.state.phase, transition.state.pods
    if not isinstance(phase, Rendezvous):
        return
    last = phase.last_round
    ended = [index for index, pod in pods.items() if pod.succeeded]
    finished = last is not None and any(
        last.has(index) and last.pod_uids.get(index, "") == pods[index].pod_uid for index in ended
    )
    if finished or (phase.unsure and ended):
        transition.succeed("a pod of this job has succeeded, so all members had")


def _still_stopping(transition: Transition, phase: Rendezvous) -> bool:
    """True while members have yet to stop the workers of the last round, or to report how they ended."""
    if transition.now - phase.since > STOPPING_SECONDS + phase.grace:
        return False
    saves = grace_left(phase, transition.now) > 0  # also the workers of a pod that goes: the next round loads that
    return _members_may_connect(transition, phase.last_round) or any(
        member.connection is not None
        and member.port is None
        and (saves or not member.leaving)
        and member.lost_at is None
        for member in transition.state.in_round(last_first=True)  # commands go out by rank, so the last ones stop last
    )


def _members_may_connect(transition: Transition, last: Round | None) -> bool:
    """True while members of an adopted round may still connect for the first time, and report how it ended."""
    if last is None or not last.adopted or transition.now - last.started_at >= awaited.ADOPTED_SECONDS:
        return False
    return awaited.unknown_may_connect(transition, last)


def _count_ended_round(transition: Transition, phase: Rendezvous) -> Rendezvous | None:
    """Record why the last round ended, and judge its failures. None: the policy ends the job."""
    state = transition.state
    failures = budget.with_early_ends(state, phase.failures)
    if not failures or phase.origin is Origin.OTHER or _is_consequence(transition, phase, failures):
        past = PastRestart(
            transition.now, TrainingReason.REGROUPING, phase.reason, False, step=budget.reached_step(state)
        )
        phase = transition.update(phase, replace(phase, stage=Stage.COLLECTING))
        if phase.last_round is not None:
            transition.state = replace(transition.state, history=budget.remember(state.history, past))
            transition.record(TrainingReason.REGROUPING, f"Round {phase.last_round.id} ends: {phase.reason}")
        return phase
    verdict = budget.judge(state, failures, transition.now)
    transition.state = replace(transition.state, history=budget.remember(state.history, verdict.restart))
    transition.record(verdict.restart.reason, verdict.message, warning=True, first=verdict.restart.first)
    if verdict.end is not None:
        transition.give_up(verdict.end)
        return None
    transition.state = replace(transition.state, restarts=state.restarts + 1)
    not_before = transition.now + verdict.pause
    collecting = replace(phase, stage=Stage.COLLECTING, not_before=not_before, reason=verdict.message)
    return transition.update(phase, collecting)


def _is_consequence(transition: Transition, phase: Rendezvous, failures: tuple[Failure, ...]) -> bool:
    """True if workers failed only because a member of their round was lost. That costs no restart."""
    last, members = phase.last_round, transition.state.members
    indices = () if last is None else [index for index in last.present if not leaves_because(phase, index)]
    found = [None if index is None else members.get(index) for index in indices]
    away = any(member is None or member.connection is None or member.leaving for member in found)
    away = away or (last is not None and bool(last.left))  # what the others fail with may follow from that loss
    return (away or phase.origin is Origin.MAYBE_LOSS) and budget.may_be_consequence(budget.root_cause(failures))
