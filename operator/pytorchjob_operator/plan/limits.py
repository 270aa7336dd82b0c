"""What ends a job although its pods would go on: its deadline, and its budget of restarts (contract A.11).

Both count from what is stored or observed, so an operator that was away judges as one that was not. Unlike v1, the
deadline has a timer, and the budget counts pods that were made again as well as restarts of containers.
"""

from datetime import datetime, timedelta

from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.observed import Observed
from pytorchjob_operator.plan.outcome import Outcome, Phase
from pytorchjob_operator.plan.replicas import Comparison


def exceeded(seen: Observed, compared: Comparison) -> Outcome | None:
    """The failure that a limit of the job means now, with v1's message, or None."""
    name = seen.job.metadata.name
    if out_of_restarts(seen.job, compared):
        return Outcome(Phase.FAILED, f"Job {name} has failed because it has reached the specified backoff limit")
    end = deadline(seen.job)
    if end is not None and seen.now >= end:
        return Outcome(Phase.FAILED, f"Job {name} has failed because it was active longer than specified deadline")
    return None


def deadline(job: PyTorchJob) -> datetime | None:
    """When activeDeadlineSeconds are over, counted from the start or the last resume."""
    seconds, start = job.spec.run_policy.active_deadline_seconds, job.status.start_time
    if seconds is None or start is None:
        return None
    try:
        return start + timedelta(seconds=seconds)
    except OverflowError:  # beyond the year 9999
        return None


def out_of_restarts(job: PyTorchJob, compared: Comparison) -> bool:
    """Whether the restarts so far use up backoffLimit; a limit of 0 allows none, a limit of n fewer than n (v1)."""
    limit = job.spec.run_policy.backoff_limit
    used = (job.status.restarts or 0) + sum(pod.restarts for pod in compared.present.values())
    return limit is not None and used >= max(limit, 1)
