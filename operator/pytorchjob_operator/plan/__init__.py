"""The decision about one job: `make_plan(Observed) -> Plan`. Pure: no client, no clock, no memory.

The policies in their order: is the job managed by this operator; what remains of it if it has ended (`ending`); what
its `queue` has decided; how do its pods compare with the wanted `replicas`; is it suspended (`suspension`), has it
ended (`outcome`), has it exceeded a limit (`job_limits`, `hopeless`); what must be written (`pods`, `service`,
`children`, `restart`, `stuck_pods`, `silent_pods`, `reserves`); what is the new status (`job_status`, `elastic`,
`waiting`, `goodput`), and which events (`events`, `pod_events`). `writes` are the values of a plan, `context` is what a
pass has computed once. Every pass derives all of it from the observation, so a crash between two writes needs no
special code.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from pytorchjob_operator import names
from pytorchjob_operator.coordinator_update import Forget
from pytorchjob_operator.model import ManagedBy, PyTorchJob, with_defaults
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.observed import Observed
from pytorchjob_operator.plan import (
    absent_agents,
    adoption,
    agent_default,
    autoscaler,
    children,
    coordinator,
    elastic,
    ending,
    events,
    gang,
    goodput,
    hopeless,
    job_limits,
    job_status,
    lifecycle,
    members,
    network_policy,
    outcome,
    pod_events,
    pods,
    queue,
    replicas,
    reserves,
    restart,
    service,
    silent_pods,
    stuck_pods,
    suspension,
)
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.outcome import ENDS, SUSPENDED, WITHOUT_PODS, JobPhase, Outcome
from pytorchjob_operator.plan.replicas import Replica, ReplicaComparison
from pytorchjob_operator.plan.writes import CreatePod, DeletePod, Plan, Write

__all__ = ["Plan", "make_plan"]


def make_plan(seen: Observed) -> Plan:
    """Decide what to do about one job, from one observation of it."""
    hands_off = _hands_off(seen.job)
    if hands_off:
        return _hand_over(seen, hands_off)
    context, end = _evaluate(seen), ending.ended(seen.job)
    plan = _plan_running(context) if end is None else ending.make_plan(seen, end)
    plan = stuck_pods.add(seen, plan)
    return replace(
        plan,
        events=(*plan.events, *gang.events(seen, plan.writes)),
        needs=_rare_kinds(seen, context.job) & seen.unserved.keys(),
        coordinator=coordinator.decide(context, end),
    )


def _rare_kinds(seen: Observed, job: PyTorchJob) -> frozenset[ChildKind]:
    """Return the optional kinds of children that this job needs."""
    scales = ChildKind.AUTOSCALER if autoscaler.wanted(job, seen.options) else None
    closes = ChildKind.NETWORK_POLICY if network_policy.wanted(job) else None
    queues = ChildKind.WORKLOAD if seen.options.kueue and queue.queue_of(job) else None
    return frozenset(kind for kind in (scales, closes, queues, gang.kind(job, seen.options)) if kind)


def _evaluate(seen: Observed) -> Context:
    """Evaluate the observation once, for all policies."""
    job = with_defaults(seen.job)
    queueing = queue.decide(seen, job)
    compared = replicas.compare(job, seen.pods, queueing.held)
    silence, crashed = silent_pods.check(seen, job, compared), hopeless.crashed(job, compared)
    adopted = adoption.adopt(seen, compared)
    agent = agent_default.decide(adopted, job, compared)
    job = agent.job
    roles = members.coordinated_roles(job, adopted.options)
    stage = goodput.stage(seen, job, compared.present.values(), coordinated=bool(roles), stops=queueing.stops)
    return Context(
        seen=adopted,
        job=job,
        compared=compared,
        counts=outcome.count(job, compared),
        silence=silence,
        replacements=restart.replacements(job, compared, seen.pods, silence.pods),
        crashed=crashed,
        unfit=hopeless.unfit(seen, job, crashed),
        postponed=_postponed(seen, compared),
        reserves=reserves.decide(seen, job, compared),
        roles=roles,
        stage=stage,
        ledger=goodput.build_ledger(seen, stage),
        agent=agent,
        queueing=queueing,
    )


def _postponed(seen: Observed, compared: ReplicaComparison) -> dict[Replica, datetime]:
    job, times = seen.job.metadata.name, seen.postponed
    named = ((replica, names.pod_name(job, replica.type, replica.index)) for replica in compared.missing)
    return {replica: times[name] for replica, name in named if name in times}


def _plan_running(context: Context) -> Plan:
    """Decide about a job that has not ended."""
    result = _result(context)
    return _publish(context, result, tuple(_writes(context, result)))


def _hands_off(job: PyTorchJob) -> str | None:
    """Return why the operator must not touch the job, or None."""
    if job.metadata.deletion_timestamp:
        return "the job is being deleted: the garbage collector removes its children"
    if not lifecycle.is_ours(job):
        return f"the job is managed by {lifecycle.manager(job)}"
    return None


def _hand_over(seen: Observed, reason: str) -> Plan:
    """Write nothing for a job of another controller, except the Workload that MultiKueue needs.

    Kueue's adapter for external frameworks reads `spec.managedBy` alone.
    """
    job = seen.job
    if job.spec.managed_by is not ManagedBy.MULTIKUEUE or job.metadata.deletion_timestamp:
        return Plan(reason=reason, coordinator=Forget())
    if (end := ending.ended(job)) is not None:
        plan = ending.make_plan(seen, end)
        return replace(plan, reason=f"{reason}; {plan.reason}", coordinator=Forget())
    asks, writes = queue.hand_over(seen, with_defaults(job))
    needs = _rare_kinds(seen, job) & {ChildKind.WORKLOAD} & seen.unserved.keys()
    return Plan(reason=reason, writes=writes, coordinator=Forget(), cluster=asks, needs=needs)


def _result(context: Context) -> Outcome:
    """Return the job's phase: suspended, or decided by its pods, unless a limit ends it first."""
    held = suspension.decide(context.seen, context.queueing)
    if held is not None:
        return held
    result = outcome.decide(context.job, context.compared, context.counts)
    if result.phase is JobPhase.SUCCEEDED:
        return result
    judged = elastic.verdict(context)
    if judged is not None or result.phase is JobPhase.FAILED:
        return judged or result
    return job_limits.exceeded(context) or hopeless.verdict(context) or result


def _publish(context: Context, result: Outcome, writes: tuple[Write, ...]) -> Plan:
    """Add the status, the time to write it and the time of the next pass."""
    seen = context.seen
    new = job_status.build_status(context, result)
    due = job_status.write_at(context, new)
    write_now = due is not None and due <= seen.now
    written, put_off = (new, None) if write_now else (None, due)
    taken_over = () if result.phase in WITHOUT_PODS else adoption.events(context, written)
    ends = None if result.phase in WITHOUT_PODS else job_limits.deadline(seen.job)
    events_of_pods = pod_events.decide(context, result)
    checks = (elastic.next_check(context, result), hopeless.next_check(context, result), _next_slice(context, writes))
    later = (*context.postponed.values(), *context.reserves.held.values(), context.reserves.next_try)
    agents = absent_agents.next_check(context)
    times = (put_off, ends, agents, context.silence.check_at, coordinator.next_check(context), *checks, *later)
    return Plan(
        reason=_reason(context, result, writes),
        writes=writes,
        status=written,
        events=(*taken_over, *events.build_events(seen.job, result, writes, written)),
        pod_events=events_of_pods.events,
        reported=events_of_pods.reported,
        lost=events_of_pods.lost,
        status_due=put_off,
        wake_at=min((time for time in times if time is not None), default=None),
        reserved={} if result.phase in WITHOUT_PODS else context.reserves.nodes,
        nodes=context.silence.nodes,
        agent=context.agent.use,
        cluster=context.queueing.asks,
        namespace=context.agent.asks,
    )


def _next_slice(context: Context, writes: tuple[Write, ...]) -> datetime | None:
    """Return now if these writes create only a part of the missing pods."""
    created = sum(isinstance(write, CreatePod) for write in writes)
    return context.seen.now if 0 < created < len(context.creatable) else None


def _writes(context: Context, result: Outcome) -> Iterator[Write]:
    """Yield the Service, then deletions, missing pods in the order of ranks, the autoscaler, and reserve pods."""
    if result.phase in SUSPENDED:
        yield from suspension.writes(context.seen)
    if result.phase not in ENDS:
        yield from queue.writes(context.seen, context.job, context.queueing)
    if result.phase in WITHOUT_PODS:
        return  # the next pass cleans up what an ended job leaves
    yield from service.writes(context)
    yield from gang.writes(context)
    yield from children.converge(context.seen, ChildKind.NETWORK_POLICY, network_policy.wanted(context.job))
    for pod in context.compared.surplus:
        if not pod.deleting:
            reason = queue.drain_reason(context.queueing, pod) or "the job was scaled down"
            yield DeletePod(pod.name, pod.uid, reason)
    for pod, reason in context.replacements.deletable():
        yield DeletePod(pod.name, pod.uid, reason)
    for pod, reason in context.reserves.surplus:
        yield DeletePod(pod.name, pod.uid, reason)
    for replica in () if gang.held(context) else context.creatable[: context.seen.options.pods_per_pass]:
        body = pods.build_pod(context.job, replica, context.seen.options)
        if replica in context.queueing.placements:
            body = context.queueing.placements[replica].into(body)
        yield CreatePod(reserves.placed(body, context.reserves.nodes))
    yield from children.converge(
        context.seen, ChildKind.AUTOSCALER, autoscaler.wanted(context.job, context.seen.options)
    )
    for replica, pod, reason in context.reserves.threatened:
        yield reserves.creation(context.job, replica, pod, reason)


def _reason(context: Context, result: Outcome, writes: tuple[Write, ...]) -> str:
    compared = context.compared
    have, missing, surplus = len(compared.present), len(compared.missing), len(compared.surplus)
    what = f"{len(writes)} {'write' if len(writes) == 1 else 'writes'}" if writes else "nothing to write"
    held = " (held back for their PodGroup)" if gang.held(context) else ""
    if context.postponed:
        held += f" ({len(context.postponed)} postponed: deleted right after their creation)"
    if context.reserves.held:
        held += f" ({len(context.reserves.held)} held back until their reserve pods are gone)"
    return f"{result.phase}: {have} pods exist, {missing} missing{held}, {surplus} surplus; {what}"
