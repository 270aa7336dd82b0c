"""Messages of members, above all while a round runs: heartbeats, failures, success, drains, and new members."""

from dataclasses import replace
from typing import assert_never

from pytorchjob_agent.contract.messages import (
    HEARTBEAT_REPLY_SECONDS,
    HEARTBEAT_SECONDS,
    Checkpoint,
    Done,
    Draining,
    Failed,
    Heartbeat,
    HeartbeatReply,
    Hold,
    Join,
    Refused,
    Restart,
    Resumed,
    RoundId,
    Unreachable,
)
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.rounds import budget, entry, formation, growth, rendezvous, shown_progress, shrink
from pytorchjob_operator.rounds.failures import stored_failure
from pytorchjob_operator.rounds.phases import Ended, Rendezvous, Running, Stalled, Trigger, Waiting
from pytorchjob_operator.rounds.plausibility import (
    believed_request,
    believed_restarts,
    implausible,
    is_implausible,
)
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Member, PastRestart, PlannedRestart, Round

CHECKPOINT_SECONDS = 60.0
"""How long workers may take to save a checkpoint on request."""


def heartbeat(transition: Transition, member: Member, message: Heartbeat) -> None:
    """Store the progress of a member and which peers it hears; answer now and then."""
    due = member.replied_at is None or transition.now - member.replied_at >= HEARTBEAT_REPLY_SECONDS
    transition.put(
        replace(
            member,
            heard_at=transition.now,
            replied_at=transition.now if due else member.replied_at,
            lost_at=None,
            cooperative=member.cooperative or message.cooperative,  # it is the same script in every round
            answered=max(member.answered, message.answered),
            saves_on_request=member.saves_on_request or message.saves_on_request,
            shrinks=message.shrinks,
            shares_state=message.shares_state,
            step=message.step if message.step is not None else member.step,
            total=message.total,
            metrics=message.metrics,
            shown=shown_progress.read(message),
        )
    )
    requests = believed_request(transition.state, message.answered)
    if requests != transition.state.requests:  # a request of another leader: the next number must be higher
        transition.state = replace(transition.state, requests=requests)
    if due:
        transition.send(member, HeartbeatReply())
    transition.reason = "a heartbeat"
    entry.complete(transition, member, message)
    round_ = transition.state.round
    if round_ is not None and round_.has(member.index):
        shown_progress.record(transition, message)
        growth.record_save(transition, member, message, round_)
        _record_peers(transition, message, round_)


def _record_peers(transition: Transition, message: Heartbeat, round_: Round) -> None:
    """A member hears its peers through the round's store; it matters for peers that the coordinator does not hear.

    A heartbeat of another round was sent before its member began this one: its ranks belong to other members.
    """
    if message.heard_in not in (None, round_.id):
        return
    for rank, age in zip(message.heard, message.heard_ages, strict=False):
        index = round_.ranks[rank] if rank < len(round_.ranks) else None
        peer = None if index is None else transition.state.members.get(index)
        if peer is None:
            continue
        if peer.lost_at is not None or transition.now - peer.heard_at > HEARTBEAT_SECONDS:
            at = max(transition.now - age / 10, peer.peer_heard_at or 0.0)
            transition.put(replace(peer, peer_heard_at=at))


def join(transition: Transition, member: Member, message: Join) -> None:
    """A member has no workers and waits for a round."""
    if message.round is not None and is_implausible(transition.state, message.round):
        _refuse(transition, member, implausible(message.round))
        return
    _record_finished(transition, message.round)
    round_ = transition.state.round
    if round_ is not None and round_.has(member.index) and message.round is not None and message.round < round_.id:
        _late_join(transition, member, round_)
        return
    entry.ends_with(transition, member, f"{member.pod} has stopped its workers")
    member = replace(member, port=message.port)
    member = transition.put(member)
    transition.reason = f"{member.pod} waits for a round"
    phase = transition.state.phase
    match phase:
        case Waiting():
            rendezvous.begin(transition, Trigger.MEMBER_JOINED, "the first member is ready")
        case Stalled():
            rendezvous.begin(transition, Trigger.MEMBER_JOINED, f"{member.pod} joins after the failed rendezvous")
        case Running(round=running) if running.has(member.index) and member.index not in running.done:
            words = f"{member.pod} has stopped its workers"
            # An agent without any round has taken the place of the round's member.
            rendezvous.begin(transition, Trigger.WORKERS_STOPPED, words, caused=message.round is None)
            rendezvous.mark_stopped(transition, caused=message.caused)
        case Running():
            notify_spares(transition)
        case Rendezvous(last_round=last):
            if last is not None and last.has(member.index):
                # The member never began a later round: it knows only that the round is over.
                over = message.round is not None and message.round >= last.id
                rendezvous.mark_stopped(transition, caused=message.caused and over)
        case Ended():
            pass
        case _:
            assert_never(phase)


def _refuse(transition: Transition, member: Member, refused: Refused) -> None:
    """Close the member's connection with the reason."""
    transition.reason = f"{member.pod} is refused: {refused.message}"
    transition.send(member, refused)
    if member.connection is not None:
        transition.close(member.connection)


def _record_finished(transition: Transition, id_: RoundId | None) -> None:
    known = transition.state.finished_round
    if id_ is not None and (known is None or id_ > known):
        transition.state = replace(transition.state, finished_round=id_)


def _late_join(transition: Transition, member: Member, round_: Round) -> None:
    """The member sent its join before this round started.

    Of a round that this coordinator formed, the member receives its assignment next. A round that the members agreed
    on, or that another leader formed, may include the member or not: it is restarted.
    """
    phase = transition.state.phase
    transition.reason = f"{member.pod} joined before round {round_.id} started"
    if isinstance(phase, Running) and not round_.adopted:
        return
    if isinstance(phase, Running) and member.index not in round_.done:
        words = f"{member.pod} has stopped its workers"
        rendezvous.begin(transition, Trigger.WORKERS_STOPPED, words, caused=False)
        rendezvous.mark_never_begun(transition)
    else:
        transition.send(member, Restart(round_.id, f"round {round_.id} is over"))
    transition.reason = f"{member.pod} joined before round {round_.id} started"


def notify_spares(transition: Transition) -> None:
    """Send members that wait beside a running round the reason. If the round has room, it restarts with them soon."""
    phase = transition.state.phase
    if not isinstance(phase, Running):
        return
    waiting = [member for member in transition.state.members.values() if member.waiting]
    if not waiting:
        return
    round_ = phase.round
    if round_.done:
        words = f"round {round_.id} is about to finish"
    elif len(round_.present) >= transition.state.policy.max_members:
        words = formation.spare_reason(round_)
    else:
        since = transition.now if phase.growing_since is None else phase.growing_since
        later = growth.awaits_save(transition, round_, since)
        words = f"round {round_.id} will restart with this pod{', after its next save' if later else ''}"
        transition.update(phase, replace(phase, growing_since=since))
    for member in waiting:
        transition.send(member, Hold(words, round_.id))


def failed(transition: Transition, member: Member, message: Failed) -> None:
    """Workers failed: all members restart. The budget decides once all of them have stopped."""
    phase, round_ = transition.state.phase, transition.state.round
    active = isinstance(phase, Running | Rendezvous)
    if round_ is None or message.round != round_.id or not active:
        transition.reason = f"{member.pod} reports a failure in round {message.round}, which is over"
        return
    if round_.has_left(member.index):
        entry.ends_with(transition, member, f"{member.pod} has failed")
        transition.reason = f"{member.pod} is not in round {round_.id} any more: its failure ends nothing"
        return
    if isinstance(phase, Rendezvous) and any(
        (failure.index, failure.rank) == (member.index, message.rank) for failure in phase.failures
    ):
        transition.reason = f"{member.pod} repeats the failure of rank {message.rank}"
        return
    earlier = len(phase.failures) if isinstance(phase, Rendezvous) else 0
    failure = stored_failure(message, member.index, transition.now, earlier)
    if failure is None:
        transition.reason = f"{member.pod} reports a failure too many"
        return
    words = f"rank {message.rank} on {member.pod} failed"
    if isinstance(phase, Running) and shrink.go_on(transition, phase, member, words, failure):
        return
    rendezvous.begin(transition, Trigger.WORKERS_FAILED, words, (failure,))


def done(transition: Transition, member: Member, message: Done) -> None:
    """The workers of a member have succeeded. The job has, once those of all members have."""
    phase = transition.state.phase
    at = transition.now - max(message.age, 0.0)
    member = replace(member, done_at=min(at, member.done_at or at))
    if not isinstance(phase, Running) or message.round != phase.round.id:
        transition.reason = f"{member.pod} reports success in round {message.round}, which is over"
        if isinstance(phase, Rendezvous) and phase.last_round is not None and message.round == phase.last_round.id:
            transition.put(member)
            last = replace(phase.last_round, done=phase.last_round.done | {member.index})
            # Why it leaves then: see `failures.leaves_because`.
            transition.update(phase, replace(phase, last_round=last))
        return
    mark_done(transition, member)
    transition.reason = f"{member.pod} is done"
    check_success(transition)


def mark_done(transition: Transition, member: Member) -> None:
    """Record a member's success. It stays recorded if the pod goes."""
    phase = transition.state.phase
    if isinstance(phase, Running) and phase.round.has(member.index):
        transition.put(replace(member, done=True))
        round_ = replace(phase.round, done=phase.round.done | {member.index})
        transition.update(phase, replace(phase, round=round_))


def check_success(transition: Transition) -> None:
    """End the job with success if all members of the round are done."""
    phase = transition.state.phase
    if not isinstance(phase, Running):
        return
    round_ = phase.round
    succeeded = {index for index, pod in transition.state.pods.items() if pod.succeeded}
    finished = round_.done | succeeded
    ranks = set(round_.present)
    unknown = round_.present.count(None)  # of an adopted round: these members may have ended before they could connect
    if unknown > len(finished - ranks) or not finished.issuperset(ranks - {None}):
        return
    transition.succeed("all members have succeeded")


def resumed(transition: Transition, member: Member, message: Resumed) -> None:
    """The members agreed on a round while the coordinator was away."""
    member, round_ = transition.put(replace(member, port=None, done_at=None)), transition.state.round
    if round_ is not None and round_.has(member.index) and message.round == round_.id:
        transition.reason = f"{member.pod} reports round {message.round}, which is known"
        if not isinstance(transition.state.phase, Running):  # its hello said that it has no workers
            rendezvous.end_workers(transition, member, round_.id)
        return
    if round_ is None or member.index not in round_.ranks or not message.round.follows(round_.id):
        _resumed_too_late(transition, member, message)
        return
    past = PastRestart(  # members agree only after a failure or a request to save; they count both as a restart
        transition.now, TrainingReason.WORKER_FAILED, message.reason, True, step=budget.reached_step(transition.state)
    )
    agreed = replace(  # a member that has left the round before is in it again
        round_,
        id=message.round,
        started_at=transition.now,
        world_size=sum(round_.nprocs),
        adopted=True,
        first_step=None,
        done=frozenset(),
        left=frozenset(),
        changes=0,
        entry=None,
        store_port=0,
    )
    transition.enter(Trigger.ROUND_REPORTED, Running(agreed))
    transition.state = replace(
        transition.state,
        restarts=believed_restarts(transition.state, message.restarts),
        history=budget.remember(transition.state.history, past),
    )
    rendezvous.end_if_members_wait(transition)
    notify_spares(transition)
    transition.reason = f"the members agreed on round {message.round}"
    words = f"The members agreed on round {message.round} without a coordinator: {message.reason}"
    transition.record(TrainingReason.ROUND_STARTED, words)


def _resumed_too_late(transition: Transition, member: Member, message: Resumed) -> None:
    """The other members are in another round by now."""
    phase, round_ = transition.state.phase, transition.state.round
    id_ = message.round if round_ is None else max(round_.id, message.round)
    transition.send(member, Restart(id_, f"the other members have left round {message.round}", caused=True))
    if isinstance(phase, Running) and phase.round.has(member.index):
        rendezvous.begin(transition, Trigger.WORKERS_STOPPED, f"{member.pod} was in round {message.round}")
    transition.reason = f"{member.pod} reports round {message.round}, which is over"


def draining(transition: Transition, member: Member, message: Draining) -> None:
    """A pod terminates: its peers go on without it at once, or they save a checkpoint first if they can."""
    member = transition.put(replace(member, leaving=True))
    phase = transition.state.phase
    transition.reason = f"{member.pod} terminates within {message.seconds:g} s"
    if not isinstance(phase, Running) or not phase.round.has(member.index):
        entry.ends_with(transition, member, f"{member.pod} terminates")
        rendezvous.release_leaving(transition)
        return
    if member.index in phase.round.done:
        return  # its part is done, so it may end before the others
    cause = f"{member.pod} is terminating ({message.reason or 'SIGTERM'})"
    if not message.handles and shrink.go_on(transition, phase, member, cause):
        rendezvous.release_leaving(transition)
        return
    plan_restart(transition, phase, cause, max(message.seconds, 0.0), handles=message.handles)


def plan_restart(transition: Transition, phase: Running, reason: str, seconds: float, *, handles: bool = False) -> None:
    """Restart once the workers have saved a checkpoint, after `seconds` at the latest; at once if none would save.

    `handles`: the workers handle SIGTERM themselves. All of them get it at once, so that they can save together.
    """
    deadline = transition.now + min(seconds, CHECKPOINT_SECONDS)
    if phase.planned is not None:
        deadline, handles = min(phase.planned.deadline, deadline), phase.planned.handles or handles
        transition.update(phase, replace(phase, planned=replace(phase.planned, deadline=deadline, handles=handles)))
        return
    if seconds <= 0 or not any(growth.may_save(phase.round, member) for member in transition.state.in_round()):
        grace = deadline - transition.now if handles else 0.0
        rendezvous.begin(transition, Trigger.MEMBERS_CHANGE, reason, grace=grace)
        return
    number = transition.state.requests + 1
    transition.state = replace(transition.state, requests=number)
    transition.update(phase, replace(phase, planned=PlannedRestart(reason, deadline, number, handles)))
    for member in transition.state.in_round():
        transition.send(member, Checkpoint(phase.round.id, number, deadline - transition.now, reason))


def advance(transition: Transition, phase: Running) -> None:
    """Do what is due in a running round: a planned restart, or a restart with more members."""
    planned = phase.planned
    if planned is not None:
        late = transition.now >= planned.deadline
        awaited = [member for member in transition.state.in_round() if member.index not in phase.round.done]
        if late or all(member.answered >= planned.number for member in awaited):
            grace = max(planned.deadline - transition.now, 0.0) if planned.handles else 0.0
            rendezvous.begin(transition, Trigger.MEMBERS_CHANGE, planned.reason, grace=grace)
        return
    phase = entry.end_if_late(transition, phase)
    if entry.begin(transition, phase):
        return
    phase, new = growth.newcomers(transition, phase)
    if new:
        phase = transition.update(phase, replace(phase, growing_since=None, gathered_at=None))
        plan_restart(transition, phase, f"{', '.join(new[:3])} joined", CHECKPOINT_SECONDS)


def unreachable(transition: Transition, member: Member, message: Unreachable) -> None:
    """A member cannot connect to a peer."""
    transition.set_problem(
        TrainingReason.PEER_UNREACHABLE,
        f"{member.pod} cannot connect to {message.peer}: {message.error}. Allow the job's pods to connect to each other"
        " on all ports (NetworkPolicy, service mesh)",
    )
    transition.reason = f"{member.pod} cannot connect to {message.peer}"
