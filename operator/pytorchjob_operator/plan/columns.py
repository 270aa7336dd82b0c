"""status.columns: what `kubectl get` prints, as texts for people. Each follows from other fields of the status.

A printer column can show one field as it is, so `3/4` and `3h10m` have to be fields. Pure.
"""

from pytorchjob_operator import shown_values
from pytorchjob_operator.goodput.figures import Figures
from pytorchjob_operator.model import JobStatus, ReplicaStatuses
from pytorchjob_operator.model.status import ColumnsStatus, ProgressStatus
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.plan.outcome import Counts

_DIGITS = 4


def build(status: JobStatus, counts: dict[ReplicaType, Counts], *, running: bool) -> ColumnsStatus:
    """Return the columns for this status; the remaining time is that of a running job only."""
    progress, elastic = status.progress, status.elastic
    left = progress.remaining_seconds if progress is not None and running else None
    return ColumnsStatus(
        ready=_ready(status.replica_statuses or ReplicaStatuses(), counts),
        restarts=(status.restarts or 0) + ((elastic.restarts if elastic else None) or 0),
        progress=None if progress is None or progress.percent is None else f"{progress.percent}%",
        eta=None if left is None else shown_values.age(left),
        loss=_loss(progress),
        **_goodput(status),
    )


def _ready(shown: ReplicaStatuses, counts: dict[ReplicaType, Counts]) -> str:
    active = sum(found.active for role in counts if (found := shown.get(role)) is not None)
    return f"{active}/{sum(count.wanted for count in counts.values())}"


def _goodput(status: JobStatus) -> dict[str, str | None]:
    """Return the columns of a job that has trained, or is over.

    The running part grows all the time, and is written with each step. Without steps it is written at the end.
    """
    stored, over = status.goodput, status.completion_time is not None
    if stored is None or not (over or stored.seconds.running):
        return {}
    figures = Figures.of_seconds(stored.seconds.to_api())
    fresh = over or stored.furthest_step is not None
    return {
        "running": f"{figures.percent:.1f}%" if fresh and figures.percent is not None else None,
        "lost": shown_values.age(figures.lost),
    }


def _loss(progress: ProgressStatus | None) -> str | None:
    value = None if progress is None else shown_values.loss(progress.metrics or {})
    return None if value is None else f"{value:.{_DIGITS}g}"
