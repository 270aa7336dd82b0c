"""The status that follows from the observed pods, and when to write it.

A status is written at once when a condition changes. Changed counters, and Running while pods are still starting, wait
a short time for the other pods, counted from the first change: a job of many pods needs three status writes, however
long the pods take to start and whichever ends first.
"""

from datetime import datetime, timedelta
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import (
    ConditionType,
    GoodputStatus,
    JobStatus,
    PyTorchJob,
    ReplicaStatus,
    ReplicaStatuses,
)
from pytorchjob_operator.model.status import LONGEST_MESSAGE
from pytorchjob_operator.names import Reason, ReplicaType
from pytorchjob_operator.observed import Pod, PodProblem, Refusal
from pytorchjob_operator.plan import (
    absent_agents,
    autoscaler,
    checkpoint_memory,
    columns,
    conditions,
    elastic,
    failing_nodes,
    gang,
    goodput,
    hopeless,
    network_policy,
    reserves,
    stragglers,
    waiting,
)
from pytorchjob_operator.plan.conditions import Conditions
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.environment import agent_variables
from pytorchjob_operator.plan.outcome import ENDS, STOPPED, SUSPENDED, WITHOUT_PODS, Counts, JobPhase, Outcome
from pytorchjob_operator.plan.restart import Replacements

RUNNING_DELAY = timedelta(seconds=2)
"""How long Running may wait for the other pods."""
COUNTERS_DELAY = elastic.STATUS_DELAY
"""How long counters alone may lag behind."""
_AT_ONCE = timedelta(0)

_CONDITIONS = {
    JobPhase.RUNNING: (ConditionType.RUNNING, Reason.RUNNING),
    JobPhase.SUSPENDED: (ConditionType.SUSPENDED, Reason.SUSPENDED),
    JobPhase.QUEUED: (ConditionType.SUSPENDED, Reason.QUEUED),
    JobPhase.RESTARTING: (ConditionType.RESTARTING, Reason.RESTARTING),
    JobPhase.SUCCEEDED: (ConditionType.SUCCEEDED, Reason.SUCCEEDED),
    JobPhase.FAILED: (ConditionType.FAILED, Reason.FAILED),
}


def build_status(context: Context, outcome: Outcome) -> JobStatus:
    """Build the status after this observation, with v1's conditions, order and times."""
    seen, stored = context.seen, context.seen.job.status
    now = seen.now.replace(microsecond=0)
    ended = outcome.phase in ENDS
    status = stored.model_copy(
        update={
            "conditions": _stamped(_conditions(context, outcome, now), seen.job),
            "replica_statuses": _replica_statuses(seen.job, context.counts, outcome),
            "start_time": _start_time(context, outcome, now),
            "last_reconcile_time": _held_since(context, now),
            **_replaced(stored, context.replacements, outcome),
            "node_failures": failing_nodes.counted(stored.node_failures or (), _new_failures(context, outcome), now)
            or None,
            "unfit_pods": None if outcome.phase in STOPPED else context.unfit or None,
            **elastic.fields(context, outcome, now),
            **stragglers.fields(context, outcome, now),
            "failure": outcome.failure,
            "completion_time": stored.completion_time or (now if ended else None),
            "observed_generation": seen.job.metadata.generation or None,
        }
    )
    kept = _with_time(context, outcome, status, stored.goodput)
    if kept == stored and not goodput.is_due(context):
        return kept
    return _with_time(context, outcome, status, goodput.build(context.ledger, context.seen.now))


def _with_time(context: Context, outcome: Outcome, status: JobStatus, time: GoodputStatus | None) -> JobStatus:
    """Add what the job's time was spent on, and the columns."""
    status = status.model_copy(update={"goodput": time})
    shown = columns.build(status, context.counts, running=outcome.phase not in WITHOUT_PODS)
    return status.model_copy(update={"columns": shown})


def write_at(context: Context, new: JobStatus) -> datetime | None:
    """Return when to write the new status; None if it equals the stored status."""
    seen = context.seen
    if seen.job.status == new:
        return None
    due = seen.now + _delay(context, new)
    return min(due, seen.status_due) if seen.status_due else due


def _delay(context: Context, new: JobStatus) -> timedelta:
    """Return how long the new status may wait for changes that are likely to follow."""
    stored, counts = context.seen.job.status, context.counts
    if (
        new.observed_generation != stored.observed_generation
        or new.restarts != stored.restarts
        or new.start_time != stored.start_time
        or stragglers.are_new(stored, new)
        or (_all_run(new, counts) and not _all_run(stored, counts))
    ):
        return _AT_ONCE
    if _without_problems(new.conditions) == _without_problems(stored.conditions):
        return elastic.delay(stored, new, context.seen.now)
    return RUNNING_DELAY if _only_running_is_new(stored, new) else _AT_ONCE


def _stamped(new: Conditions, job: PyTorchJob) -> Conditions:
    """Return the conditions; those that changed get the generation that they are about."""
    generation = {"observed_generation": job.metadata.generation or None}
    return tuple(
        condition if condition in job.status.conditions else condition.model_copy(update=generation)
        for condition in new
    )


def _conditions(context: Context, outcome: Outcome, now: datetime) -> Conditions:
    seen = context.seen
    name, stored = seen.job.metadata.name, seen.job.status.conditions
    new = conditions.set_true(stored, ConditionType.CREATED, Reason.CREATED, f"PyTorchJob {name} is created.", now)
    new = _refused(new, seen.refusal, now)
    new = _config(new, context, now)
    new = _waits(new, waiting.decide(context, outcome), now)
    new = _degraded(new, _problem(context, outcome), now)
    if outcome.phase in SUSPENDED:
        for kind in (ConditionType.RUNNING, ConditionType.RESTARTING):
            new = conditions.set_false(new, kind, _CONDITIONS[outcome.phase][1], outcome.message, now)
    if outcome.phase is JobPhase.RESUMED:
        new = conditions.set_false(new, ConditionType.SUSPENDED, Reason.RESUMED, outcome.message, now)
    if outcome.phase in ENDS:
        new = conditions.end_running(new, now)
    if outcome.phase in _CONDITIONS:
        kind, reason = _CONDITIONS[outcome.phase]
        new = conditions.set_true(new, kind, reason, outcome.message, now)
    return new


def _waits(given: Conditions, problem: PodProblem | None, now: datetime) -> Conditions:
    """Set Waiting while the job waits; a new message with the same reason is not a change."""
    shown = conditions.find(given, ConditionType.WAITING)
    if problem is None or (shown is not None and shown.reason != problem.reason):
        given = conditions.remove(given, ConditionType.WAITING)
    if problem is None:
        return given
    return conditions.set_true(given, ConditionType.WAITING, problem.reason, problem.message, now)


def _degraded(given: Conditions, problem: PodProblem | None, now: datetime) -> Conditions:
    """Set Degraded while the running job has a problem; never last, where it would be the job's State."""
    if problem is None:
        return conditions.remove(given, ConditionType.DEGRADED)
    return conditions.set_first(given, ConditionType.DEGRADED, problem.reason, problem.message, now)


def _problem(context: Context, outcome: Outcome) -> PodProblem | None:
    """Return the problem of a job that is not over: a crash loop comes first, as the likeliest cause of the others."""
    crash, training = hopeless.problem(context, outcome), elastic.problem(context, outcome)
    if crash is None or training is None:
        return crash or training
    return PodProblem(crash.reason, f"{crash.message}; {training.message}"[:LONGEST_MESSAGE])


def _config(given: Conditions, context: Context, now: datetime) -> Conditions:
    """Set ConfigValid to False while a part of the spec has no effect."""
    unserved = context.seen.unserved
    wrong = (
        autoscaler.problem(context.job, context.seen.options, unserved)
        or network_policy.problem(context.job, unserved)
        or agent_variables.problem(context.job, context.seen.options)
        or absent_agents.problem(context)
        or checkpoint_memory.problem(context.job)
        or reserves.problem(context.job, context.seen.options)
    )
    if wrong is None:
        return conditions.remove(given, ConditionType.CONFIG_VALID)
    return conditions.set_first(given, ConditionType.CONFIG_VALID, *wrong, now)


def _start_time(context: Context, outcome: Outcome, now: datetime) -> datetime | None:
    """Return the start time: when the operator starts the job, and again when it is resumed.

    A job that was created suspended, or whose first pods a gang scheduler holds back, has no start time.
    """
    stored = context.seen.job.status.start_time
    if outcome.phase is JobPhase.SUSPENDED:
        return stored
    if outcome.phase is JobPhase.RESUMED:
        return now
    return stored or (None if gang.held(context) else now)


def _held_since(context: Context, now: datetime) -> datetime | None:
    """Return when a gang scheduler last began to hold pods back; v1 writes it in every pass, which never settles."""
    stored = context.seen.job.status
    shown = conditions.find(stored.conditions, ConditionType.WAITING)
    if gang.problem(context) is None:
        return stored.last_reconcile_time
    known = shown is not None and shown.reason in gang.WAITS
    return stored.last_reconcile_time if known and stored.last_reconcile_time else now


def _replaced(stored: JobStatus, replaced: Replacements, outcome: Outcome) -> dict[str, Any]:
    """Count the failed pods that are replaced; a job that ends or is suspended replaces no pods."""
    if outcome.phase in ENDS:
        return {"replacing": None}
    if outcome.phase in STOPPED:
        return {"replacing": tuple(sorted(replaced.counted)) or None}
    restarts = (stored.restarts or 0) + replaced.used_up()
    return {"restarts": restarts or None, "replacing": replaced.uids() or None}


def _new_failures(context: Context, outcome: Outcome) -> tuple[Pod, ...]:
    """Return the failed pods that this status counts; see `_replaced`."""
    return () if outcome.phase in STOPPED else context.replacements.uncounted()


def _refused(given: Conditions, refusal: Refusal | None, now: datetime) -> Conditions:
    """Set ReplicaFailure while the API server refuses a child, with the server's message."""
    if refusal is None:
        return conditions.remove(given, ConditionType.REPLICA_FAILURE)
    shown = conditions.find(given, ConditionType.REPLICA_FAILURE)
    if shown is not None and shown.message != refusal.message:
        given = conditions.remove(given, ConditionType.REPLICA_FAILURE)
    return conditions.set_true(given, ConditionType.REPLICA_FAILURE, refusal.reason, refusal.message, now)


def _replica_statuses(job: PyTorchJob, counts: dict[ReplicaType, Counts], outcome: Outcome) -> ReplicaStatuses:
    """Return the counters. Running pods count as succeeded once the job has succeeded, and not once suspended."""
    done = outcome.phase is JobPhase.SUCCEEDED
    still = outcome.phase not in (JobPhase.SUCCEEDED, JobPhase.SUSPENDED)
    shown = {
        replica_type.value: ReplicaStatus(
            active=count.active if still else 0,
            succeeded=count.succeeded + (count.active if done else 0),
            failed=count.failed,
            selector=names.selector(job.metadata.name, replica_type),
        )
        for replica_type, count in counts.items()
    }
    return ReplicaStatuses(**shown)


def _all_run(status: JobStatus, counts: dict[ReplicaType, Counts]) -> bool:
    """Whether every pod has started, by these counters."""
    shown = status.replica_statuses or ReplicaStatuses()
    pairs = ((shown.get(replica_type) or ReplicaStatus(), count.wanted) for replica_type, count in counts.items())
    return all(status.active + status.succeeded == wanted for status, wanted in pairs)


def _only_running_is_new(stored: JobStatus, new: JobStatus) -> bool:
    """Whether only Running or Waiting changed, as while pods start one after the other."""
    return _settled(new.conditions) == _settled(stored.conditions) and not conditions.is_true(
        stored.conditions, ConditionType.RUNNING
    )


def _settled(given: Conditions) -> Conditions:
    passing = (ConditionType.RUNNING, ConditionType.WAITING, ConditionType.DEGRADED)
    return tuple(condition for condition in given if condition.type not in passing)


def _without_problems(given: Conditions) -> Conditions:
    return conditions.remove(given, ConditionType.DEGRADED)
