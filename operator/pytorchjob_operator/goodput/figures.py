"""The figures of a job's ledger at a moment, read from its stored status. Pure.

The status is not written while nothing but time changes: the time since it was written belongs to its open class.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.interruptions import Causes

_ENDS = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class SaveFigures:
    """The saves that the script made by itself."""

    count: int | None = None
    """None: unknown. 0: it made none."""
    seconds: float = 0.0
    steps: int = 0
    """Steps before these saves."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Where a job's time went."""

    seconds: Mapping[TimeClass, float]
    interruptions: int = 0
    """Failures and losses that ended a round, or without whose pod it went on."""
    steps_known: bool = True
    """False: running time counts as running, and replayed steps are unknown."""
    new_steps: int = 0
    """Steps that the seconds of running hold."""
    causes: Causes = field(default_factory=Causes)
    saves: SaveFigures = field(default_factory=SaveFigures)

    @classmethod
    def of_seconds(cls, stored: Mapping[str, Any], *others: Any) -> "Figures":
        """Read `status.goodput.seconds`; classes of a later version are left out. Raises ValueError or TypeError."""
        return cls({each: float(stored.get(each.value) or 0.0) for each in TimeClass}, *others)

    @property
    def total(self) -> float:
        """The wall clock of the job, in seconds."""
        return sum(self.seconds.values())

    @property
    def lost(self) -> float:
        """Seconds that are known to be lost."""
        return self.total - self.of(TimeClass.RUNNING)

    @property
    def percent(self) -> float | None:
        """The part in which workers ran and no loss is known, rounded to a tenth; None before any time has passed."""
        return round(100 * self.of(TimeClass.RUNNING) / self.total, 1) if self.total > 0 else None

    def of(self, *classes: TimeClass) -> float:
        """Return the seconds of these classes."""
        return sum(self.seconds.get(each, 0.0) for each in classes)


def read(status: Mapping[str, Any], now: datetime) -> Figures | None:
    """Return the figures of a job with this status; None if the status has no ledger, or a damaged one."""
    stored = status.get("goodput")
    if not isinstance(stored, Mapping):
        return None
    try:
        known = _number(stored, "interruptions"), stored.get("furthestStep") is not None
        figures = Figures.of_seconds(
            stored["seconds"], *known, _number(stored, "newSteps"), _causes(stored), _saves(stored)
        )
        current, time = TimeClass(stored["current"]), datetime.fromisoformat(stored["time"])
        late = 0.0 if _ended(status) else max((now - time).total_seconds(), 0.0)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
    return replace(figures, seconds={**figures.seconds, current: figures.of(current) + late})


def _number(stored: Mapping[str, Any], name: str) -> int:
    return int(stored.get(name) or 0)


def _causes(stored: Mapping[str, Any]) -> Causes:
    return Causes(_number(stored, "podLosses"), _number(stored, "crashes"), _number(stored, "hangs"))


def _saves(stored: Mapping[str, Any]) -> SaveFigures:
    count = stored.get("saves")
    seconds = float(stored.get("saveSeconds") or 0.0)
    return SaveFigures(None if count is None else int(count), seconds, _number(stored, "savedSteps"))


def _ended(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions") or ()
    return any(each.get("type") in _ENDS and each.get("status") == "True" for each in conditions)
