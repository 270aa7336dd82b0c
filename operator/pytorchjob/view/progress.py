"""How far a job's training is: the values of `status.progress` at this moment. Pure; `now` is an argument."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pytorchjob.view import reading
from pytorchjob.view.command import starts_agent
from pytorchjob_operator import shown_values
from pytorchjob_operator.problem import read_time

Object = Mapping[str, Any]
_ENDS = ("Succeeded", "Failed")
WITHOUT_AGENT = (
    "its command starts no agent, so nothing reads its steps: set `spec.agent: {inject: true}` (docs/agent.md)"
)
UNREPORTED = "docs/elastic.md has the calls, libraries and lines by which a script shows its progress"


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What `progress` shows; None: unknown."""

    job: str
    state: str
    """Type of the latest condition; empty: no operator has accepted the job."""
    ended: bool = False
    step: int | None = None
    total: int | None = None
    percent: int | None = None
    remaining: int | None = None
    """Seconds from `now` on: the recorded time less the time since then. None once the job has ended."""
    rate: float | None = None
    """Steps per second."""
    loss: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    age: float | None = None
    """Seconds since the values were recorded."""
    without: Sequence[str] = ()
    """Pods without which the round goes on until the next save."""

    @property
    def known(self) -> bool:
        """Whether the job shows any progress."""
        return self.step is not None or self.percent is not None or bool(self.metrics)

    @property
    def share(self) -> float | None:
        """How much of the training is done, from 0 to 1: by the steps, which are finer than the percentage."""
        if self.step is not None and self.total:
            return min(self.step / self.total, 1.0)
        return None if self.percent is None else self.percent / 100


def progress_view(job: Object, now: datetime) -> JobProgress:
    """Return the progress of a job, as the API server or a local run has it."""
    status = _object(job.get("status"))
    progress, conditions = _object(status.get("progress")), status.get("conditions") or []
    time, metrics = read_time(progress.get("time")), _numbers(progress.get("metrics"))
    age = None if time is None else max((now - time).total_seconds(), 0.0)
    ended = any(each.get("type") in _ENDS and each.get("status") == "True" for each in conditions)
    remaining = _whole(progress.get("remainingSeconds"))
    return JobProgress(
        job=str(_object(job.get("metadata")).get("name") or ""),
        state=str(conditions[-1].get("type") or "") if conditions else "",
        ended=ended,
        step=_whole(progress.get("step")),
        total=_whole(progress.get("total")),
        percent=_whole(progress.get("percent")),
        remaining=None if remaining is None or ended else max(round(remaining - (age or 0.0)), 0),
        rate=_numbers({"rate": progress.get("stepsPerSecond")}).get("rate"),
        loss=shown_values.loss(metrics),
        metrics=metrics,
        age=age,
        without=tuple(map(str, () if ended else _object(status.get("elastic")).get("without") or ())),
    )


def why_none(job: Object, now: datetime, least: float = 0.0) -> str:
    """Return why a job shows no progress, and what to change; empty if it shows some or may soon.

    `least`: seconds that a job with the agent has to run first, because its script may not have begun a step yet.
    """
    view = progress_view(job, now)
    if view.known:
        return ""
    if starts_agent(job) is False:
        return WITHOUT_AGENT
    running = reading.changed_at(reading.condition(job, "Running"))
    due = least == 0 or (running is not None and (now - running).total_seconds() >= least)
    return UNREPORTED if due and not view.ended else ""


def _object(value: Any) -> Object:
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _numbers(value: Any) -> dict[str, float]:
    given = _object(value)
    return {name: float(found) for name, found in given.items() if isinstance(found, int | float)}
