"""Between two rounds: which members to wait for, when to form a round (`formation`), and when to give up.

A fixed job waits for all of its pods. An elastic job also starts without pods that do not come in time.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from pytorchjob_agent.contract.messages import Hold, Restart, Stop
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.rounds import absent, budget, endings, formation
from pytorchjob_operator.rounds.failures import leaves_because
from pytorchjob_operator.rounds.phases import Ended, Rendezvous, Running, Stalled, Trigger, Waiting
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import (
    EndReason,
    ExpectedPod,
    Failure,
    Member,
    PastRestart,
    Round,
    TrainingReason,
)

ADOPTED_SECONDS = 10.0
"""How long the members of an adopted round may take to connect to this coordinator."""
STOPPING_SECONDS = 10.0
"""How long members may take to stop their workers before an elastic round starts without them."""
REPORT_FIRST_SECONDS = 5.0
"""After this time waiting members first receive the reason for waiting."""
REPORT_EVERY_SECONDS = 15.0
"""How often they receive it again."""
DRAINED = "Drained"


def begin(
    transition: Transition, trigger: Trigger, reason: str, failures: tuple[Failure, ...] = (), *, caused: bool = True
) -> None:
    """Start a rendezvous: end the running round and restart its members. `caused`: later failures do not count."""
    phase, now = transition.state.phase, transition.now
    transition.reason = reason
    match phase:
        case Waiting():
            transition.enter(trigger, Rendezvous(now, reason))
        case Stalled(last_round=round_, stopped=stopped):
            transition.enter(trigger, Rendezvous(now, reason, round_, stopped=stopped, counted=True))
        case Running(round=round_):
            caused, stopped = caused and not failures, bool(failures)
            transition.enter(trigger, Rendezvous(now, reason, round_, failures, caused=caused, stopped=stopped))
        case Rendezvous():
            stopped = phase.stopped or bool(failures)
            transition.update(replace(phase, failures=(*phase.failures, *failures), stopped=stopped))
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
    caused = isinstance(phase, Rendezvous) and phase.caused
    if round_ is None:
        return
    for member in transition.in_round():
        if member.port is None:
            transition.send(member, Restart(round_.id, reason, dump=dump, caused=caused))
    release_leaving(transition)


def mark_stopped(transition: Transition, *, caused: bool = False) -> None:
    """Record that a member of the last round has no workers any more.

    `caused`: the member knows another reason than a failure, from a former coordinator or because it was cut off.
    """
    phase = transition.state.phase
    if isinstance(phase, Rendezvous):
        transition.update(replace(phase, stopped=True, lost=phase.lost or caused))


def mark_never_begun(transition: Transition) -> None:
    """Record that a member never began the last round: its assignment was lost, so the others could not connect."""
    phase = transition.state.phase
    if isinstance(phase, Rendezvous):
        transition.update(replace(phase, lost=True))


def end_if_members_wait(transition: Transition) -> None:
    """End a running round of which a member has no workers: it joined before the other members agreed to continue."""
    phase = transition.state.phase
    if not isinstance(phase, Running):
        return
    idle = [
        member for member in transition.in_round() if member.port is not None and member.index not in phase.round.done
    ]
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
    if not phase.counted:
        counted = _count_ended_round(transition, phase)
        if counted is None:
            return
        phase = counted
    if len(transition.state.members) < transition.state.policy.min_members and not _report_due(transition, phase):
        return  # the usual case while a large job starts: the code below checks every member
    waiting = [member for member in transition.state.members.values() if member.waiting]
    enough = transition.now >= phase.not_before and _is_enough(transition, phase, waiting)
    if enough and not _last_round_may_run(transition, phase):
        absent.remember(transition, phase.last_round)  # the next round knows nothing of these members
        formation.form(transition, phase, waiting)
    else:
        _keep_waiting(transition, phase, waiting)


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
        endings.succeed(transition, "a pod of this job has succeeded, so all members had")


def _still_stopping(transition: Transition, phase: Rendezvous) -> bool:
    """True while members have yet to stop the workers of the last round, or to report how they ended."""
    if transition.now - phase.since > STOPPING_SECONDS:
        return False
    return _members_may_connect(transition, phase.last_round) or any(
        member.connection is not None and member.port is None and not member.leaving and member.lost_at is None
        for member in transition.in_round(last_first=True)  # commands go out by rank, so the last ones stop last
    )


def _members_may_connect(transition: Transition, last: Round | None) -> bool:
    """True while members of an adopted round may still connect for the first time, and report how it ended."""
    if last is None or not last.adopted or transition.now - last.started_at >= ADOPTED_SECONDS:
        return False
    return unknown_may_connect(transition, last)


def unknown_may_connect(transition: Transition, round_: Round) -> bool:
    """True if members of the round have not connected to this coordinator, and there are pods that they may be."""
    state, known = transition.state, set(round_.ranks)
    if None not in known:
        return False
    others = [(index, pod) for index, pod in state.pods.items() if index not in known]
    succeeded = sum(1 for _, pod in others if pod.succeeded)
    waiting = sum(1 for index, _ in others if (member := state.members.get(index)) is not None and member.waiting)
    unknown = round_.ranks.count(None) - succeeded
    return unknown > 0 and (not state.pods or unknown <= len(others) - succeeded - waiting)


def _count_ended_round(transition: Transition, phase: Rendezvous) -> Rendezvous | None:
    """Record why the last round ended, and judge its failures. None: the policy ends the job."""
    state = transition.state
    if not phase.failures or phase.caused or _is_consequence(transition, phase):
        past = PastRestart(
            transition.now, TrainingReason.REGROUPING, phase.reason, False, step=budget.reached_step(state)
        )
        phase = replace(phase, counted=True)
        transition.update(phase)
        if phase.last_round is not None:
            transition.state = replace(transition.state, history=budget.remember(state.history, past))
            transition.record(TrainingReason.REGROUPING, f"Round {phase.last_round.id} ends: {phase.reason}")
        return phase
    verdict = budget.judge(state, phase.failures, transition.now)
    transition.state = replace(transition.state, history=budget.remember(state.history, verdict.restart))
    transition.record(verdict.restart.reason, verdict.message, warning=True)
    if verdict.end is not None:
        endings.give_up(transition, verdict.end)
        return None
    phase = replace(phase, counted=True, not_before=transition.now + verdict.pause, reason=verdict.message)
    transition.state = replace(transition.state, restarts=state.restarts + 1)
    transition.update(phase)
    return phase


def _is_consequence(transition: Transition, phase: Rendezvous) -> bool:
    """True if workers failed only because a member of their round was lost. That costs no restart."""
    last, members = phase.last_round, transition.state.members
    indices = () if last is None else [each for each in last.ranks if not leaves_because(phase.failures, last, each)]
    found = [None if index is None else members.get(index) for index in indices]
    away = any(member is None or member.connection is None or member.leaving for member in found)
    return (away or phase.lost) and budget.may_be_consequence(budget.root_cause(phase.failures))


def missing_pods(transition: Transition, waiting: Sequence[Member]) -> list[int]:
    """Return the expected replicas that do not wait here."""
    here = {member.index for member in waiting}
    return [index for index, pod in sorted(transition.state.pods.items()) if index not in here and not pod.succeeded]


def _is_enough(transition: Transition, phase: Rendezvous, waiting: Sequence[Member]) -> bool:
    policy, pods = transition.state.policy, transition.state.pods
    if len(waiting) < policy.min_members:
        return False
    if len(waiting) >= policy.max_members and not phase.unsure:
        return True  # at first the coordinator waits for all: it does not know whether the missing pods train a round
    coming = [index for index in missing_pods(transition, waiting) if not pods[index].problem]
    if phase.unsure:
        coming += [index for index in transition.state.terminating if index not in transition.state.members]
    else:
        coming = [index for index in coming if _may_reconnect(transition, index)]
    return not coming or transition.now - phase.since >= _patience(transition, phase)


def _patience(transition: Transition, phase: Rendezvous) -> float:
    """Return how long a rendezvous with enough members waits for others, in seconds.

    A member that trains has not connected to a new leader before it misses the old one. So that leader waits at least
    as long as for the members of an adopted round, also if the user wants a shorter last call.
    """
    policy, may_train = transition.state.policy, phase.learned or transition.state.trained
    first = max(policy.last_call_timeout, ADOPTED_SECONDS if may_train else 0.0)
    return first if phase.unsure else policy.rejoin_timeout


def _may_reconnect(transition: Transition, index: int) -> bool:
    """True if the agent of the present pod was connected before: a new pod takes longer than the rejoin timeout."""
    member = transition.state.members.get(index)
    return member is not None and not member.leaving and not is_replaced(transition.state.pods[index], member.pod_uid)


def is_replaced(pod: ExpectedPod, uid: str) -> bool:
    """True if another pod serves the replica of the pod with this uid."""
    return bool(uid and pod.pod_uid and pod.pod_uid != uid)


def _last_round_may_run(transition: Transition, phase: Rendezvous) -> bool:
    """True if the last round may still train while the coordinator hears none of its members.

    Two groups of one job must never train at once. A pod that is gone ends the doubt, unless its agent is connected.
    """
    if (last := phase.last_round) is None or phase.stopped:
        return False
    pods = last.pod_uids.items()
    return all(_is_connected(transition, index, uid) for index, uid in pods if _is_gone(transition, index, uid))


def _is_connected(transition: Transition, index: int, uid: str) -> bool:
    """True if the agent in this pod is connected: its workers train until it has stopped them."""
    member = transition.state.members.get(index)
    return member is not None and member.pod_uid == uid and member.connection is not None


def is_away(transition: Transition, index: int, uid: str) -> bool:
    """True if the pod with this uid does not exist any more: deleted or replaced, and not terminating either."""
    pod = transition.state.pods.get(index)
    return transition.state.terminating.get(index) != uid and (pod is None or is_replaced(pod, uid))


def _is_gone(transition: Transition, index: int, uid: str) -> bool:
    """True if the pod with this uid does not run any more, as the operator sees it."""
    pod = transition.state.pods.get(index)
    return is_away(transition, index, uid) or (pod is not None and (bool(pod.problem) or pod.succeeded))


def _is_late(transition: Transition, phase: Rendezvous) -> bool:
    return transition.now - phase.since >= transition.state.policy.join_timeout


def _report_due(transition: Transition, phase: Rendezvous) -> bool:
    """True if the waiting members receive a reason now."""
    due = phase.since + REPORT_FIRST_SECONDS if phase.reported_at is None else phase.reported_at + REPORT_EVERY_SECONDS
    return transition.now >= due or _is_late(transition, phase)


def _keep_waiting(transition: Transition, phase: Rendezvous, waiting: Sequence[Member]) -> None:
    """Report what the rendezvous waits for: soon at first, then now and then. Give up after the join timeout."""
    if not _report_due(transition, phase):
        return
    words = _why_waiting(transition, phase, waiting)
    if _is_late(transition, phase):
        _time_out(transition, phase, waiting, words)
        return
    transition.update(replace(phase, reported_at=transition.now))
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
    transition.enter(Trigger.TIMED_OUT, Stalled(transition.now, message, phase.last_round, phase.stopped))
    transition.reason = message


def _why_waiting(transition: Transition, phase: Rendezvous, waiting: Sequence[Member]) -> str:
    policy, state = transition.state.policy, transition.state
    if transition.now < phase.not_before:
        return f"the next round starts in {phase.not_before - transition.now:.0f} s: {phase.reason}"
    if _is_enough(transition, phase, waiting) and phase.last_round is not None:
        doubt = "the coordinator hears none of its members, and their pods still run"
        if any(member.connection is not None for member in transition.in_round()):
            doubt = "its members have not stopped their workers yet"
        return f"round {phase.last_round.id} may still train: {doubt}"
    missing = missing_pods(transition, waiting)
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
