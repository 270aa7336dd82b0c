"""What happened to a job between two stored versions: the transitions that the metrics count.

Two versions of the stored object are compared, so that only written changes count. A job that is seen for the first
time, as after a restart of the operator, changes no metric.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from pytorchjob_operator.model import ConditionType, JobStatus, ManagedBy, PyTorchJob
from pytorchjob_operator.plan.outcome import JobPhase

_PHASES = {
    ConditionType.SUCCEEDED: JobPhase.SUCCEEDED,
    ConditionType.FAILED: JobPhase.FAILED,
    ConditionType.SUSPENDED: JobPhase.SUSPENDED,
    ConditionType.RESTARTING: JobPhase.RESTARTING,
    ConditionType.RUNNING: JobPhase.RUNNING,
}
"""The condition that decides the phase, the strongest first."""
PHASES = (JobPhase.PENDING, *_PHASES.values())
"""Every phase that a stored job can be in."""


@dataclass(frozen=True, slots=True)
class Edges:
    """What happened to a job from one version to the next."""

    created: bool = False
    """The operator started the job: its first status was written."""
    succeeded: bool = False
    failed: bool = False
    restarted: bool = False
    """A decision to replace failed pods, whatever their number."""
    replaced: tuple[str, ...] = ()
    """uids of the failed pods that are replaced."""
    started_after: timedelta | None = None
    """Time from the job's creation or resumption until it runs; None also if it runs again after a restart."""


def compare(old: PyTorchJob, new: PyTorchJob) -> Edges:
    """Compare a job with its previous version; a job of another controller has no transitions."""
    if not is_ours(new):
        return Edges()
    before = frozenset(old.status.replacing or ())
    replaced = tuple(uid for uid in new.status.replacing or () if uid not in before)
    return Edges(
        created=is_taken_up(new) and not is_taken_up(old),
        succeeded=_rises(old, new, ConditionType.SUCCEEDED),
        failed=_rises(old, new, ConditionType.FAILED),
        restarted=bool(replaced) or _rises(old, new, ConditionType.RESTARTING),
        replaced=replaced,
        started_after=_started_after(old, new),
    )


def phase(status: JobStatus) -> JobPhase:
    """Return the phase in a stored status."""
    return next((found for kind, found in _PHASES.items() if status.holds(kind)), JobPhase.PENDING)


def is_ours(job: PyTorchJob) -> bool:
    """Whether this operator manages the job."""
    return manager(job) in (None, ManagedBy.OPERATOR)


def manager(job: PyTorchJob) -> ManagedBy | None:
    """Return who manages the job: the first of its two fields that names another controller, or any."""
    named = [each for each in (job.spec.managed_by, job.spec.run_policy.managed_by) if each is not None]
    return next((each for each in named if each is not ManagedBy.OPERATOR), named[0] if named else None)


def is_taken_up(job: PyTorchJob) -> bool:
    """Whether the operator has written the job's first status."""
    return job.status.condition(ConditionType.CREATED) is not None


def _rises(old: PyTorchJob, new: PyTorchJob, kind: ConditionType) -> bool:
    return new.status.holds(kind) and not old.status.holds(kind)


def _started_after(old: PyTorchJob, new: PyTorchJob) -> timedelta | None:
    running = new.status.condition(ConditionType.RUNNING)
    if not _rises(old, new, ConditionType.RUNNING) or running is None or running.last_transition_time is None:
        return None
    stops = (ConditionType.RESTARTING, ConditionType.SUSPENDED)
    last = next((condition.type for condition in reversed(old.status.conditions) if condition.type in stops), None)
    if last is ConditionType.RESTARTING:
        return None
    since = new.status.start_time if last is ConditionType.SUSPENDED else _time(new.metadata.creation_timestamp)
    return None if since is None else max(running.last_transition_time - since, timedelta(0))


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
