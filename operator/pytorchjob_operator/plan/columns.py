"""status.columns: what `kubectl get` prints, as texts for people. Each follows from other fields of the status.

A printer column can show one field as it is, so `3/4` and `3h10m` have to be fields. Pure.
"""

from math import inf

from pytorchjob_operator.model import JobStatus, ReplicaStatuses
from pytorchjob_operator.model.status import ColumnsStatus
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.plan.outcome import Counts

_LOSSES = ("loss", "train_loss", "train/loss", "training_loss", "train_loss_step", "train_loss_epoch")
"""Names under which scripts report the loss of the training, the likeliest first."""
_DIGITS = 4
_UNITS: tuple[tuple[float, int, str, int, str], ...] = (
    (120, 1, "s", 0, ""),
    (600, 60, "m", 1, "s"),
    (3 * 3600, 60, "m", 0, ""),
    (8 * 3600, 3600, "h", 60, "m"),
    (2 * 86_400, 3600, "h", 0, ""),
    (8 * 86_400, 86_400, "d", 3600, "h"),
    (inf, 86_400, "d", 0, ""),
)
"""A time below the first number of a row is shown in this unit, and its rest in the other one."""


def build(status: JobStatus, counts: dict[ReplicaType, Counts], *, running: bool) -> ColumnsStatus:
    """Return the columns for this status; the remaining time is that of a running job only."""
    progress, elastic = status.progress, status.elastic
    left = progress.remaining_seconds if progress is not None and running else None
    return ColumnsStatus(
        ready=_ready(status.replica_statuses or ReplicaStatuses(), counts),
        restarts=(status.restarts or 0) + ((elastic.restarts if elastic else None) or 0),
        progress=None if progress is None or progress.percent is None else f"{progress.percent}%",
        eta=None if left is None else duration(left),
        loss=_loss(dict(progress.metrics or {})) if progress is not None else None,
    )


def duration(seconds: int) -> str:
    """Return a time as kubectl writes ages, the finer the shorter it is: 42s, 3m5s, 25m, 3h10m, 28h, 2d4h, 9d."""
    _, unit, name, part, part_name = next(row for row in _UNITS if seconds < row[0])
    rest = seconds % unit // part if part else 0
    return f"{seconds // unit}{name}" + (f"{rest}{part_name}" if rest else "")


def _ready(shown: ReplicaStatuses, counts: dict[ReplicaType, Counts]) -> str:
    active = sum(found.active for role in counts if (found := shown.get(role)) is not None)
    return f"{active}/{sum(count.wanted for count in counts.values())}"


def _loss(metrics: dict[str, float]) -> str | None:
    value = next((metrics[name] for name in _LOSSES if name in metrics), None)
    return None if value is None else f"{value:.{_DIGITS}g}"
