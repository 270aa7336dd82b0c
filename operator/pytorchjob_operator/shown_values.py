"""How people see values: times as kubectl writes them, and which metric is the loss. Pure.

The operator writes them into `status.columns`, and the command line prints them.
"""

from collections.abc import Mapping
from math import inf

_LOSSES = ("loss", "train_loss", "train/loss", "training_loss", "train_loss_step", "train_loss_epoch")
"""Names under which scripts report the loss of the training, the likeliest first."""
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


def age(seconds: float) -> str:
    """Return a time span as kubectl writes ages, the finer the shorter it is: 42s, 3m5s, 25m, 3h10m, 28h, 2d4h, 9d."""
    whole = max(int(seconds), 0)
    _, unit, name, part, part_name = next(row for row in _UNITS if whole < row[0])
    rest = whole % unit // part if part else 0
    return f"{whole // unit}{name}" + (f"{rest}{part_name}" if rest else "")


def loss(metrics: Mapping[str, float]) -> float | None:
    """Return the loss of the training; None if no metric has the name of one."""
    return next((metrics[name] for name in _LOSSES if name in metrics), None)
