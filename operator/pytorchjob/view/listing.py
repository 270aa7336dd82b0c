"""One line for a job in a list: State, Ready, Restarts, Step, Progress, ETA, Age."""

from dataclasses import dataclass

from pytorchjob.view import reading
from pytorchjob.view.reading import Object

UNKNOWN = "-"
_DELETING = "Deleting"
_NEW = "New"
"""No operator has written a status yet."""


@dataclass(frozen=True, slots=True)
class JobLine:
    """What a list shows of a job; unknown numbers are None."""

    namespace: str
    name: str
    state: str
    ready: str
    """Running pods of wanted pods: 3/4."""
    restarts: int
    step: str
    """Steps done, of all steps if the script reports their number."""
    percent: int | None
    remaining: int | None
    """Seconds."""
    created: str | None
    reason: str
    """Reason of the latest condition."""
    message: str


def job_line(job: Object) -> JobLine:
    """Return the line of a job."""
    meta, status = job["metadata"], job.get("status") or {}
    progress = status.get("progress") or {}
    latest = (status.get("conditions") or [{}])[-1]
    return JobLine(
        namespace=str(meta.get("namespace") or ""),
        name=str(meta["name"]),
        state=_DELETING if meta.get("deletionTimestamp") else str(latest.get("type") or _NEW),
        ready=f"{_running(status)}/{reading.wanted_pods(job)}",
        restarts=int(status.get("restarts") or 0) + int((status.get("elastic") or {}).get("restarts") or 0),
        step=_step(progress),
        percent=progress.get("percent"),
        remaining=progress.get("remainingSeconds"),
        created=meta.get("creationTimestamp"),
        reason=str(latest.get("reason") or ""),
        message=str(latest.get("message") or ""),
    )


def _running(status: Object) -> int:
    counts = status.get("replicaStatuses") or {}
    return sum(int((counts[role] or {}).get("active") or 0) for role in counts)


def _step(progress: Object) -> str:
    step, total = progress.get("step"), progress.get("total")
    if step is None:
        return UNKNOWN
    return f"{step}/{total}" if total else str(step)
