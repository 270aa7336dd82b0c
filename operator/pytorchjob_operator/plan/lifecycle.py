"""What became of a job between two versions of it: the edges that the counters count, each in one place.

Two versions of the stored object are compared, so that nothing counts that was not written, and a job that is merely
seen for the first time, as after a restart of the operator, counts nowhere.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from pytorchjob_operator.model import ConditionType, JobStatus, ManagedBy, PyTorchJob
from pytorchjob_operator.plan.outcome import Phase

_PHASES = {
    ConditionType.SUCCEEDED: Phase.SUCCEEDED,
    ConditionType.FAILED: Phase.FAILED,
    ConditionType.SUSPENDED: Phase.SUSPENDED,
    ConditionType.RESTARTING: Phase.RESTARTING,
    ConditionType.RUNNING: Phase.RUNNING,
}
"""The condition that decides, the strongest first."""
PHASES = (Phase.PENDING, *_PHASES.values())
"""Every phase that a stored job can be in."""


@dataclass(frozen=True, slots=True)
class Edges:
    """What happened to a job from one version to the next."""

    created: bool = False
    """The operator has taken it up: its first status was written."""
    succeeded: bool = False
    failed: bool = False
    restarted: bool = False
    """One decision to make lost pods again, however many pods it is about."""
    replaced: tuple[str, ...] = ()
    """uids of the failed pods that are going to be made again."""
    started_after: timedelta | None = None
    """How long the job took to run, since it was made or resumed; None also for one that runs again after a restart."""


def compare(old: PyTorchJob, new: PyTorchJob) -> Edges:
    """Compare a job with the version of it before; another controller's job has no edges of ours."""
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


def phase(status: JobStatus) -> Phase:
    """The phase that a stored status tells."""
    return next((one for kind, one in _PHASES.items() if status.holds(kind)), Phase.PENDING)


def is_ours(job: PyTorchJob) -> bool:
    """Whether this operator looks after the job."""
    return job.spec.run_policy.managed_by in (None, ManagedBy.OPERATOR)


def is_taken_up(job: PyTorchJob) -> bool:
    """Whether the job has had its first status."""
    return job.status.condition(ConditionType.CREATED) is not None


def _rises(old: PyTorchJob, new: PyTorchJob, kind: ConditionType) -> bool:
    return new.status.holds(kind) and not old.status.holds(kind)


def _started_after(old: PyTorchJob, new: PyTorchJob) -> timedelta | None:
    running = new.status.condition(ConditionType.RUNNING)
    if not _rises(old, new, ConditionType.RUNNING) or running is None or running.last_transition_time is None:
        return None
    stops = (ConditionType.RESTARTING, ConditionType.SUSPENDED)
    last = next((one.type for one in reversed(old.status.conditions) if one.type in stops), None)
    if last is ConditionType.RESTARTING:
        return None
    since = new.status.start_time if last is ConditionType.SUSPENDED else _time(new.metadata.creation_timestamp)
    return None if since is None else max(running.last_transition_time - since, timedelta(0))


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
