"""Which members are lost: by a closed connection, by silence, by the operator's observation. And which only seem to be.

A member whose peers still hear it through the round's store has lost only the coordinator. Its workers continue, and
so do all others. Rank 0 is a member like any other: the next round has a new rank 0 and a new store.
"""

from dataclasses import replace
from typing import assert_never

from pytorchjob_agent.contract.messages import HEARTBEAT_SECONDS, LEASE_SECONDS, Terminating
from pytorchjob_agent.contract.reasons import ShrinkState, TrainingReason
from pytorchjob_operator.rounds import absent, awaited, entry, rendezvous, running, shrink, threats
from pytorchjob_operator.rounds.failures import with_loss
from pytorchjob_operator.rounds.phases import Ended, Phase, Rendezvous, Running, Stalled, Trigger, Waiting
from pytorchjob_operator.rounds.state import JobState, JobSynced
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Member, Round, SilentAgent

RECONNECT_SECONDS = 2.5 * HEARTBEAT_SECONDS
"""How long a member may take to reconnect: by then its peers have reported whether they hear it."""
SLEEP_SECONDS = 2.0
"""A coordinator that handled no input for this long has slept itself, and blames no member for it."""
ALL_SILENT_SECONDS = LEASE_SECONDS - 1.5 * HEARTBEAT_SECONDS
"""If every member has been silent for this long, the coordinator itself is cut off. Connections that break together run
out of their leases at most one heartbeat apart."""
PEER_SECONDS = 3.0 * HEARTBEAT_SECONDS
"""For how long a sign of life counts that a peer reports."""
DELIVERY_SECONDS = 0.2 * HEARTBEAT_SECONDS
"""By how much a report may arrive later than the end of the connection of the member that it is about."""
_FORMER_UIDS = 8
_CHECK_NETWORK = "Check NetworkPolicies between the pod and the operator."


def shift_after_sleep(state: JobState, now: float) -> JobState:
    """Return the state with all deadlines of members moved by the time for which the coordinator slept.

    Members also get the usual time to stop their workers, to join, and to connect in an adopted round.
    """
    gap = now - state.checked_at
    if state.checked_at == 0.0 or gap <= SLEEP_SECONDS:
        return replace(state, checked_at=now)
    members = {
        index: replace(
            member,
            heard_at=member.heard_at + gap,
            lost_at=None if member.lost_at is None else member.lost_at + gap,
            peer_heard_at=None if member.peer_heard_at is None else member.peer_heard_at + gap,
        )
        for index, member in state.members.items()
    }
    silent = {index: replace(agent, since=agent.since + gap) for index, agent in state.silent.items()}
    return replace(state, members=members, silent=silent, phase=_shift_phase(state.phase, gap), checked_at=now)


def _shift_phase(phase: Phase, gap: float) -> Phase:
    match phase:
        case Rendezvous(since=since, last_round=Round(adopted=True) as round_):
            return replace(phase, since=since + gap, last_round=_shift_round(round_, gap))
        case Rendezvous(since=since):
            return replace(phase, since=since + gap)
        case Running(round=Round(adopted=True) as round_):
            return replace(phase, round=_shift_round(round_, gap))
        case Waiting() | Running() | Stalled() | Ended():
            return phase
    assert_never(phase)


def _shift_round(round_: Round, gap: float) -> Round:
    return replace(round_, started_at=round_.started_at + gap)


def connection_closed(transition: Transition, connection: int, index: int) -> None:
    """A connection ended. Its member may reconnect."""
    member = transition.state.members.get(index)
    if member is None or member.connection != connection:
        transition.reason = "an old connection ended"
        return
    transition.reason = f"{member.pod} has lost its connection"
    ends = member.leaving and not _trains(transition, member)
    if ends or isinstance(transition.state.phase, Ended | Stalled):
        _remove(transition, member, "has left")
    else:
        transition.put(replace(member, connection=None, port=None, lost_at=transition.now))


def _trains(transition: Transition, member: Member) -> bool:
    """True if no command has ended the workers of this member: also those of a terminating pod, which still save."""
    phase = transition.state.phase
    return isinstance(phase, Running) and phase.round.has(member.index) and member.index not in phase.round.done


def sync_job(transition: Transition, job: JobSynced) -> None:
    """Take over what the job is now. A disconnected member is lost if its pod is gone."""
    former = dict(transition.state.former_uids)
    for index, before in transition.state.pods.items():
        after = job.pods.get(index)
        if before.pod_uid and (after is None or after.pod_uid != before.pod_uid):
            former[index] = (*former.get(index, ()), before.pod_uid)[-_FORMER_UIDS:]
    grows = job.policy.max_members > transition.state.policy.max_members
    known = transition.state.terminating
    transition.state = replace(
        transition.state,
        policy=job.policy,
        pods=job.pods,
        terminating=job.terminating,
        trained=job.trained,
        former_uids=former,
        restarts=max(transition.state.restarts, job.restarts),
        silent={
            index: agent for index, agent in transition.state.silent.items() if _is_pod_of(job, index, agent.pod_uid)
        },
    )
    if grows:
        running.notify_spares(transition)
    threats.sync(transition)
    for member in transition.state.members.values():
        new = known.get(member.index) != member.pod_uid == job.terminating.get(member.index)
        if new and not member.leaving:
            transition.send(member, Terminating())
    transition.reason = f"the job has {len(job.pods)} pods"
    for member in tuple(transition.state.members.values()):
        saves = member.leaving and _trains(transition, member)
        if member.connection is None and not saves and awaited.is_away(transition, member.index, member.pod_uid):
            _remove(transition, member, "was deleted")
    rendezvous.check_earlier_success(transition)


def find_lost_members(transition: Transition) -> None:
    """Remove the members that have been silent for too long."""
    if _all_silent(transition):
        return
    cut_off = []
    for member in tuple(transition.state.members.values()):
        since = _silent_since(transition, member)
        if since is None:
            continue
        if _peers_hear(transition, member, since):
            cut_off.append(member.pod)
        elif transition.now - since >= _patience(transition, member):
            if member.connection is not None:
                transition.close(member.connection)
            _remember_silence(transition, member)
            _remove(transition, member, f"sent nothing for {transition.now - since:.1f} s")
    if cut_off:
        names = ", ".join(cut_off[:3])
        words = f"{names} cannot reach the coordinator, but its peers hear it. Its workers continue. {_CHECK_NETWORK}"
        transition.set_problem(TrainingReason.COORDINATOR_UNREACHABLE, words)
    else:
        transition.clear_problem(TrainingReason.COORDINATOR_UNREACHABLE)
    round_ = transition.state.round
    if round_ is not None and transition.now - round_.started_at >= awaited.ADOPTED_SECONDS:
        absent.remember(transition, round_)
    _give_up_unknown_ranks(transition)
    rendezvous.end_if_members_wait(transition)


def _all_silent(transition: Transition) -> bool:
    """True if the coordinator hears no member of a round that may train. That does not prove that any is lost.

    Training needs no coordinator. When the first member is back, the others have the usual time to follow. Without a
    round that may train there is nothing to protect: silent members are lost as usual.
    """
    members, phase = transition.state.members.values(), transition.state.phase
    may_train = isinstance(phase, Running) or (isinstance(phase, Rendezvous) and not phase.first)
    if not may_train or not members:
        return False
    if any(member.lost_at is None and transition.now - member.heard_at < ALL_SILENT_SECONDS for member in members):
        return False
    for member in tuple(transition.state.members.values()):
        if member.connection is not None and transition.now - member.heard_at >= LEASE_SECONDS:
            transition.close(member.connection)
            _remember_silence(transition, member)
            transition.put(replace(member, connection=None, port=None, lost_at=transition.now))
        elif member.lost_at is not None:
            transition.put(replace(member, lost_at=transition.now))
    transition.set_problem(
        TrainingReason.COORDINATOR_UNREACHABLE,
        f"the coordinator hears no agent of this job. Running workers continue. {_CHECK_NETWORK}",
    )
    return True


def _remember_silence(transition: Transition, member: Member) -> None:
    """Keep that this agent fell silent: if its container has run all the time, the operator replaces the pod."""
    if _is_pod_of(transition.state, member.index, member.pod_uid):
        pod = transition.state.pods.get(member.index)
        uid = member.pod_uid if pod is None else pod.pod_uid
        silent = {**transition.state.silent, member.index: SilentAgent(uid, member.heard_at)}
        transition.state = replace(transition.state, silent=silent)


def _is_pod_of(job: JobState | JobSynced, index: int, uid: str) -> bool:
    """True if the pod with this uid serves the replica, or is about to end."""
    pod = job.pods.get(index)
    ends = bool(uid) and job.terminating.get(index) == uid
    return ends or (pod is not None and not awaited.is_replaced(pod, uid))


def _silent_since(transition: Transition, member: Member) -> float | None:
    """Return since when the member is silent. None: not long enough to mean anything."""
    if member.lost_at is not None:
        return member.lost_at
    return member.heard_at if transition.now - member.heard_at > LEASE_SECONDS / 2 else None


def _peers_hear(transition: Transition, member: Member, since: float) -> bool:
    """True if the member lived after it fell silent, and recently, by its peers' reports with their ages.

    A member whose connection is open may have died up to one heartbeat after its last message.
    """
    round_ = transition.state.round
    if member.peer_heard_at is None or round_ is None or not round_.has(member.index):
        return False
    died_by = since + DELIVERY_SECONDS + (0.0 if member.lost_at is not None else HEARTBEAT_SECONDS)
    return member.peer_heard_at > died_by and transition.now - member.peer_heard_at < PEER_SECONDS


def _patience(transition: Transition, member: Member) -> float:
    state = transition.state
    if member.lost_at is not None and _workers_have_lost_it(state, member):
        return DELIVERY_SECONDS
    if member.index not in state.pods and state.pods and awaited.is_away(transition, member.index, member.pod_uid):
        return RECONNECT_SECONDS / 2  # the operator knows that its pod is gone
    return RECONNECT_SECONDS if member.lost_at is not None else LEASE_SECONDS


def _workers_have_lost_it(state: JobState, lost: Member) -> bool:
    """Return whether workers of its running round have lost a connection, and all members but this are connected."""
    members = [*state.in_round()]
    if not isinstance(state.phase, Running) or lost not in members or lost.index in state.phase.round.done:
        return False
    broken = any(member.shrinks == ShrinkState.BROKEN and member.connection is not None for member in members)
    return broken and sum(member.connection is None for member in members) == 1


def _remove(transition: Transition, member: Member, why: str) -> None:
    """Remove a member. A running round ends with it, unless the member is done."""
    transition.drop(member.index)
    entry.ends_with(transition, member, f"{member.pod} {why}")
    phase = transition.state.phase
    if isinstance(phase, Rendezvous) and phase.last_round is not None and phase.last_round.has(member.index):
        transition.update(phase, with_loss(phase, member.index))
    if _trains(transition, member):
        assert isinstance(phase, Running)
        words = f"{member.pod} {why}"
        if not shrink.go_on(transition, phase, member, words):
            rendezvous.begin(transition, Trigger.MEMBER_LOST, words)


def _give_up_unknown_ranks(transition: Transition) -> None:
    """End an adopted round of which a member never connects."""
    phase = transition.state.phase
    if not isinstance(phase, Running) or not phase.round.adopted or None not in phase.round.present:
        return
    round_, known = phase.round, set(phase.round.present)
    succeeded = sum(pod.succeeded for index, pod in transition.state.pods.items() if index not in known)
    unknown = round_.present.count(None) - succeeded
    late = transition.now - round_.started_at >= awaited.ADOPTED_SECONDS
    if unknown > 0 and (late or not awaited.unknown_may_connect(transition, round_)):
        ranks = [str(rank) for rank, index in enumerate(round_.ranks) if index is None and rank not in round_.left]
        which = f"node rank {ranks[0]}" if len(ranks) == 1 else f"node ranks {', '.join(ranks[:10])}"
        words = f"{which} of round {round_.id} did not reconnect"
        rendezvous.begin(transition, Trigger.MEMBER_LOST, words)
