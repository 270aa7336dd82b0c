"""An agent sends its hello: may it serve its replica, and how does it fit the present phase.

The operator's expected pod decides which pod serves a replica. Where there is none, an agent that lives keeps its
place. A coordinator that does not know a running round learns it from the hellos of its members.
"""

from dataclasses import replace
from typing import assert_never

from pytorchjob_agent.contract.messages import (
    VERSION,
    Checkpoint,
    Finished,
    Hello,
    Refused,
    Restart,
    RoundId,
    Stop,
    Welcome,
)
from pytorchjob_agent.contract.reasons import EndReason, TrainingReason
from pytorchjob_operator.rounds import past_failures, rendezvous, running, shrink, threats
from pytorchjob_operator.rounds.failures import with_loss
from pytorchjob_operator.rounds.phases import Ended, LastWorkers, Rendezvous, Running, Stalled, Trigger, Waiting
from pytorchjob_operator.rounds.plausibility import believed_restarts, implausible, is_implausible
from pytorchjob_operator.rounds.state import JobState, Send
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Member, Round

FRESH_SECONDS = 2.0
"""An agent that sent something within this time lives."""
REFUSED_SECONDS = 60.0
"""A refused agent is a problem of the job for this long."""


def hello(transition: Transition, connection: int, message: Hello) -> None:
    """Accept an agent, or refuse it with the reason."""
    refused = _refusal(transition, message)
    if refused is not None:
        transition.reason = f"{message.pod} is refused: {refused.message}"
        transition.commands.append(Send(connection, refused))
        transition.close(connection)
        return
    known = transition.state.members.get(message.index)
    again = known is not None and known.incarnation == message.incarnation
    member = _accept(transition, connection, message)
    restarts = believed_restarts(transition.state, message.restarts)  # also of members that wait between two rounds
    silent = {index: agent for index, agent in transition.state.silent.items() if index != member.index}
    history = past_failures.restore(transition.state.history, message.past_failures, message.past_age, transition.now)
    transition.state = replace(transition.state, restarts=restarts, silent=silent, history=history)
    transition.send(member, Welcome(transition.state.term))
    transition.reason = f"{message.pod} has connected"
    if isinstance(transition.state.phase, Ended):
        _send_end(transition, member, message, transition.state.phase)
        return
    _fit_into_round(transition, member, message, again)
    phase = transition.state.phase
    if member.leaving and not (isinstance(phase, Running) and phase.planned is not None):
        rendezvous.release_leaving(transition)


def authentication_failed(transition: Transition, reason: TrainingReason, message: str) -> None:
    """Set the problem of an agent that may not enter; one event for all of them while it lasts."""
    transition.state = replace(transition.state, refused_at=transition.now)
    transition.reason = message
    if reason not in transition.state.problems:
        transition.set_problem(reason, message)


def expire_refusals(transition: Transition) -> None:
    """Clear the problems of refused agents after a while without another one."""
    state, expired = transition.state, transition.now - REFUSED_SECONDS
    if state.refused_at is not None and state.refused_at <= expired:
        transition.state = replace(transition.state, refused_at=None)
        transition.clear_problem(TrainingReason.AGENT_REFUSED)
        transition.clear_problem(TrainingReason.AGENT_LIMIT)
    if state.duplicate_at is not None and state.duplicate_at <= expired:
        transition.state = replace(transition.state, duplicate_at=None)
        transition.clear_problem(TrainingReason.DUPLICATE_REPLICA)


def _refusal(transition: Transition, message: Hello) -> Refused | None:
    """Return why the agent may not serve its replica; None if it may."""
    if message.version != VERSION:
        return Refused(
            f"protocol version {message.version}: this operator supports version {VERSION}; use this operator's agent"
        )
    for reported in (message.round, message.last_round):
        if reported is not None and is_implausible(transition.state, reported):
            return implausible(reported)
    pod, known = transition.state.pods.get(message.index), transition.state.members.get(message.index)
    uid = pod.pod_uid if pod is not None else ""
    if uid and message.pod_uid and uid != message.pod_uid:
        if message.pod_uid in transition.state.former_uids.get(message.index, ()) or _is_older(
            transition, message, uid
        ):
            return Refused(f"{message.pod} was replaced by a newer pod", fenced=True)
        return Refused(f"pod {message.pod} is not registered yet; retrying", again=True)
    if known is None or known.incarnation == message.incarnation:
        return None
    if uid and uid == message.pod_uid != known.pod_uid:
        return None
    return _refuse_duplicate(transition, message, known)


def _refuse_duplicate(transition: Transition, message: Hello, known: Member) -> Refused | None:
    """Refuse a second agent while the first one lives."""
    lives = known.connection is not None and known.lost_at is None and transition.now - known.heard_at < FRESH_SECONDS
    if not lives:
        return None
    words = (
        f"another agent already serves replica {message.index} ({known.pod}):"
        " run pytorchjob-agent in only one container of a pod"
    )
    transition.state = replace(transition.state, duplicate_at=transition.now)
    transition.set_problem(TrainingReason.DUPLICATE_REPLICA, words)
    return Refused(words, again=True)


def _is_older(transition: Transition, message: Hello, uid: str) -> bool:
    """True if the replica's present pod was in a later round: a new leader does not know the former pods."""
    round_ = transition.state.round
    return (
        round_ is not None
        and message.round is not None
        and message.round < round_.id
        and round_.pod_uids.get(message.index) == uid
    )


def _accept(transition: Transition, connection: int, message: Hello) -> Member:
    """Store a new member, or give a known one its new connection."""
    known = transition.state.members.get(message.index)
    offset = message.clock - transition.now if message.clock else None
    if known is not None and known.connection is not None and known.connection != connection:
        transition.close(known.connection)
    if known is not None and known.incarnation == message.incarnation:
        return transition.put(
            replace(
                known,
                connection=connection,
                heard_at=transition.now,
                replied_at=None,
                lost_at=None,
                port=None,
                done=message.done or known.done,
                clock_offset=offset,
            )
        )
    return transition.put(
        Member(
            index=message.index,
            pod=message.pod,
            pod_uid=message.pod_uid,
            incarnation=message.incarnation,
            connection=connection,
            address=message.address,
            nproc=message.nproc,
            heard_at=transition.now,
            done=message.done,
            versions=message.versions,
            tolerates_versions=message.warnings,
            clock_offset=offset,
        )
    )


def _send_end(transition: Transition, member: Member, message: Hello, phase: Ended) -> None:
    end = phase.end
    if end.reason is EndReason.SUCCEEDED and message.done and message.round is not None:
        transition.send(member, Finished(message.round))
    else:
        transition.send(member, Stop(end.exit_code, end.reason, end.message))


def _fit_into_round(transition: Transition, member: Member, message: Hello, again: bool) -> None:
    """Compare the agent's round with the known one. `again`: it was connected before."""
    known, reported = transition.state.round, message.round
    if reported is None and message.rank not in message.left and _report_ended(transition, member, message):
        return
    if reported is not None and (known is None or reported >= known.id) and message.rank >= message.size:
        transition.send(member, Restart(reported, f"rank {message.rank} is not in a round of {message.size} members"))
    elif reported is not None and (known is None or reported > known.id):
        _adopt(transition, member, message, reported)
    elif known is None:
        return
    elif reported == known.id and message.size == len(known.ranks):
        _recognise(transition, member, message, known)
    else:
        if reported is not None:
            transition.send(member, Restart(known.id, f"round {known.id} replaces round {reported}"))
        _without_workers(transition, member, again)


def _report_ended(transition: Transition, member: Member, message: Hello) -> bool:
    """Take over the end of a round from a member without workers. False: it is not the latest round, or unknown.

    Its reports of failures follow. A coordinator that did not know the round counts them like the one before it.
    """
    ended, known = message.last_round, transition.state.round
    if ended is None or not message.rank < message.size or (known is not None and ended < known.id):
        return False
    if known is None or ended > known.id:
        _learn_ended_round(transition, member, Round(ended, (None,) * message.size, transition.now, adopted=True))
    _fill_rank(transition, member, message)
    phase = transition.state.phase
    match phase:
        case Running(round=round_) if round_.has(member.index) and member.index not in round_.done:
            words = f"{member.pod} has stopped its workers"
            rendezvous.begin(transition, Trigger.WORKERS_STOPPED, words, caused=False)
            rendezvous.mark_stopped(transition)
        case Rendezvous(last_round=last) if last is not None and last.has(member.index):
            rendezvous.mark_stopped(transition)
        case Stalled(last_round=last) if last is not None and last.has(member.index):
            transition.update(phase, replace(phase, workers=LastWorkers.STOPPED))
        case _:
            pass
    return True


def _learn_ended_round(transition: Transition, member: Member, ended: Round) -> None:
    """A round that this coordinator does not know has ended: its members come one by one."""
    reason = f"{member.pod} was in round {ended.id}, which is over"
    learned = Rendezvous(transition.now, reason, ended, workers=LastWorkers.STOPPED_LONG_AGO)
    if isinstance(transition.state.phase, Running):
        rendezvous.begin(transition, Trigger.WORKERS_STOPPED, reason)
    phase = transition.state.phase
    match phase:
        case Waiting():
            transition.enter(Trigger.ROUND_OVER, learned)
            rendezvous.check_earlier_success(transition)
        case Rendezvous():
            transition.update(phase, replace(learned, not_before=phase.not_before))
        case Stalled():
            transition.update(phase, replace(phase, last_round=ended))
        case Running() | Ended():
            raise AssertionError(f"{phase} is left before")
        case _:
            assert_never(phase)


def _fill_rank(transition: Transition, member: Member, message: Hello) -> None:
    """Give a member the rank in the known round that it reports, if the round has this rank and it is free."""
    phase, round_ = transition.state.phase, transition.state.round
    if round_ is None or len(round_.ranks) != message.size or round_.ranks[message.rank] is not None:
        return
    if round_.has(member.index):
        return
    ranks = tuple(member.index if rank == message.rank else index for rank, index in enumerate(round_.ranks))
    filled = replace(round_, ranks=ranks, pod_uids={**round_.pod_uids, member.index: member.pod_uid})
    match phase:
        case Running():
            transition.update(phase, replace(phase, round=filled))
        case Rendezvous() | Stalled():
            transition.update(phase, replace(phase, last_round=filled))
        case Waiting() | Ended():
            pass
        case _:
            assert_never(phase)


def _without_workers(transition: Transition, member: Member, again: bool) -> None:
    """A member of the known round runs no workers in it any more. `again`: the same agent as before."""
    phase = transition.state.phase
    match phase:
        case Running(round=round_):
            if not round_.has(member.index) or member.index in round_.done:
                return
            what = "has stopped its workers" if again else "has restarted"
            rendezvous.begin(transition, Trigger.WORKERS_STOPPED, f"{member.pod} {what}", caused=not again)
            if again:  # an agent whose workers were in this round reports so: see _report_ended
                rendezvous.mark_never_begun(transition)
            else:
                rendezvous.mark_stopped(transition)
        case Rendezvous(last_round=round_) if round_ is not None and round_.has(member.index) and not again:
            transition.update(phase, with_loss(phase, member.index))
            rendezvous.mark_stopped(transition)
        case Stalled(last_round=round_) if round_ is not None and round_.has(member.index) and not again:
            transition.update(phase, replace(phase, workers=LastWorkers.STOPPED))
        case Waiting() | Rendezvous() | Stalled() | Ended():
            pass
        case _:
            assert_never(phase)


def _adopt(transition: Transition, member: Member, message: Hello, id_: RoundId) -> None:
    """Take over a round that another leader formed, or the members themselves."""
    old = transition.state.round
    ranks: tuple[int | None, ...] = (None,) * message.size
    pod_uids: dict[int, str] = {}
    if old is not None and id_.follows(old.id):
        ranks, pod_uids = old.ranks, dict(old.pod_uids)
    else:
        _stop_older_members(transition, id_)
    if len(ranks) != message.size or ranks[message.rank] not in (None, member.index):
        ranks, pod_uids = (None,) * message.size, {}
    left = _left(message)
    adopted = Running(Round(id_, ranks, transition.now, adopted=True, pod_uids=pod_uids, left=left))
    transition.enter(Trigger.ROUND_REPORTED, adopted)
    _take_rank(transition, member, message, adopted)
    transition.reason = f"round {id_} continues"
    rendezvous.end_if_members_wait(transition)
    running.notify_spares(transition)


def _stop_older_members(transition: Transition, id_: RoundId) -> None:
    """Stop the members of the round that was the last one until now."""
    for member in transition.state.in_round():
        if member.port is None:
            transition.send(member, Restart(id_, f"round {id_} replaces this round"))


def _left(message: Hello) -> frozenset[int]:
    """Return the ranks that have left the member's round, as far as they may: rank 0 hosts the store."""
    return frozenset(rank for rank in message.left if 0 < rank < message.size)


def _learn_left(transition: Transition, message: Hello) -> None:
    """Take over from a member that others have left their round, and end the workers of these.

    Their failures are among the restarts that this member reports.
    """
    phase, known = transition.state.phase, transition.state.round
    if known is None or not known.adopted or not (new := _left(message) - known.left):
        return
    round_ = replace(known, left=known.left | new, changes=known.changes + len(new))
    gone = {round_.ranks[rank] for rank in new if rank < len(round_.ranks)}
    match phase:
        case Running():
            transition.update(phase, replace(phase, round=round_))
        case Rendezvous():
            failures = tuple(failure for failure in phase.failures if failure.index not in gone)
            transition.update(phase, replace(phase, last_round=round_, failures=failures))
        case Stalled():
            transition.update(phase, replace(phase, last_round=round_))
        case Waiting() | Ended():
            return
        case _:
            assert_never(phase)
    for index in gone:
        member = None if index is None else transition.state.members.get(index)
        if member is not None and member.port is None:
            transition.send(member, Restart(round_.id, f"the others go on in round {round_.id} without {member.pod}"))


def _take_rank(transition: Transition, member: Member, message: Hello, phase: Running) -> None:
    """Give a member the rank in the running round that it reports."""
    round_ = phase.round
    ranks = [None if index == member.index else index for index in round_.ranks]
    ranks[message.rank] = member.index
    pod_uids = {**round_.pod_uids, member.index: message.pod_uid}
    changes = max(round_.changes, message.change)
    taken = replace(round_, ranks=tuple(ranks), pod_uids=pod_uids, changes=changes)
    transition.update(phase, replace(phase, round=_with_sizes(transition.state, taken)))
    if message.done:
        running.mark_done(transition, member)


def _with_sizes(state: JobState, round_: Round) -> Round:
    """Return an adopted round with the workers of each member, once all of them are here."""
    if round_.nprocs or round_.left:
        return round_
    members = [None if index is None else state.members.get(index) for index in round_.ranks]
    nprocs = tuple(member.nproc for member in members if member is not None)
    return replace(round_, nprocs=nprocs, world_size=sum(nprocs)) if len(nprocs) == len(round_.ranks) else round_


def _recognise(transition: Transition, member: Member, message: Hello, known: Round) -> None:
    """A member of the known round: of an adopted one for the first time, or again after a lost connection."""
    phase = transition.state.phase
    if not isinstance(phase, Running):
        _fill_rank(transition, member, message)
        _learn_left(transition, message)
        rendezvous.end_workers(transition, member, known.id)
        return
    holder = known.ranks[message.rank]
    if holder is not None and holder != member.index:
        transition.send(
            member, Restart(known.id, f"rank {message.rank} belongs to {transition.state.pod_name(holder)}")
        )
        return
    if known.entering == member.index:
        return
    if message.rank in known.left:
        transition.send(member, Restart(known.id, f"the others go on in round {known.id} without {member.pod}"))
        return
    _take_rank(transition, member, message, phase)
    _learn_left(transition, message)
    shrink.repeat(transition, member, transition.state.round or known)
    if phase.planned is not None:
        planned = phase.planned
        seconds = planned.deadline - transition.now
        transition.send(member, Checkpoint(known.id, planned.number, seconds, planned.reason))
    threats.repeat(transition, member)
