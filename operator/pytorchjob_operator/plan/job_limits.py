"""Limits that end a job whose pods still run: its deadline, and its budget of restarts (docs/compatibility.md).

Both count from what is stored or observed, so an interruption of the operator does not change the decision. Unlike
under v1, the deadline has a timer. The budget counts restarts of containers, replaced pods, and workers that an agent
restarted inside their container.
"""

from datetime import datetime, timedelta

from pytorchjob_agent.contract.reasons import EndReason
from pytorchjob_operator.model import PyTorchJob, RestartPolicy
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.plan import elastic, replicas
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.outcome import Outcome, failed


def exceeded(context: Context) -> Outcome | None:
    """Return the failure, with v1's message, if the job exceeds a limit now; otherwise None."""
    seen, name = context.seen, context.job.metadata.name
    if out_of_restarts(context):
        return failed(
            EndReason.BACKOFF_LIMIT, f"Job {name} has failed because it has reached the specified backoff limit"
        )
    end = deadline(seen.job)
    if end is not None and seen.now >= end:
        return failed(EndReason.DEADLINE, f"Job {name} has failed because it was active longer than specified deadline")
    return None


def deadline(job: PyTorchJob) -> datetime | None:
    """Return when activeDeadlineSeconds end, counted from the start or the last resume; None without a deadline."""
    return after(job.status.start_time, job.spec.run_policy.active_deadline_seconds)


def after(start: datetime | None, seconds: int | None) -> datetime | None:
    """Return the time this many seconds later; None if either is missing or the result exceeds the calendar."""
    if start is None or seconds is None:
        return None
    try:
        return start + timedelta(seconds=seconds)
    except OverflowError:
        return None


def out_of_restarts(context: Context) -> bool:
    """Whether the restarts so far exceed backoffLimit: limit 0 allows no restart, limit n fewer than n (v1).

    A failed pod counts from the first pass that observes it. Its containers' restarts count once: with the pod while
    it exists, with the status once that lists it. A pod with policy Never has no restarts, even of sidecars (v1).
    """
    limit = context.job.spec.run_policy.backoff_limit
    listed = {*context.replacements.uids()}
    there = sum(
        pod.restarts
        for replica, pod in context.compared.present.items()
        if pod.uid not in listed and _may_restart(context.job, replica.type)
    )
    used = (context.job.status.restarts or 0) + context.replacements.used_up() + there + elastic.restarts(context)
    return limit is not None and used >= max(limit, 1)


def _may_restart(job: PyTorchJob, replica_type: ReplicaType) -> bool:
    spec = job.spec.pytorch_replica_specs.get(replica_type)
    return spec is not None and replicas.restart_policy(spec) is not RestartPolicy.NEVER
