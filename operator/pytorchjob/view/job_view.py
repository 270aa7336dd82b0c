"""The screen of a job as a value: `make_job_view(seen)`. Printers turn it into text or JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pytorchjob.view import advice, history, reading, restarts, rows, state, survival
from pytorchjob.view.causes.cause import Finding
from pytorchjob.view.causes.table import diagnose
from pytorchjob.view.history import Happened
from pytorchjob.view.queueing import QueueView, queue_view
from pytorchjob.view.restarts import Restarts
from pytorchjob.view.rows import RUNNING, Row
from pytorchjob.view.seen import Seen
from pytorchjob.view.state import State
from pytorchjob.view.time_spent import TimeView, time_view
from pytorchjob_operator.problem import read_time


@dataclass(frozen=True, slots=True)
class RoundView:
    """The group that trains now."""

    id: str
    members: int | None
    workers: int | None
    restarts: int
    max_restarts: int | None
    """How many `elasticPolicy.maxRestarts` allows; None without it."""
    window_seconds: int | None
    """The time within which they count; None: over the job's life."""
    last_restart_at: datetime | None
    last_restart: str
    without: Sequence[str]
    """Pods without which the workers have gone on."""
    survive: str
    """What follows from the loss of a pod, in a clause; empty: a new round, as `spec.agent.survive` is Off."""


@dataclass(frozen=True, slots=True)
class ProgressView:
    """What the script reported last."""

    step: int | None
    total: int | None
    percent: int | None
    remaining_seconds: int | None
    metrics: Mapping[str, float]
    at: datetime | None


@dataclass(frozen=True, slots=True)
class JobView:
    """One screen about one job."""

    name: str
    namespace: str
    state: State
    since: datetime | None
    reason: str
    """One sentence: the root cause if it is known, otherwise what the job does."""
    created: datetime | None
    ready: int
    """Pods of which the main container runs, as in `kubectl get ptj`."""
    succeeded: int
    wanted: int
    restarts: Restarts
    queue: QueueView | None
    rows: tuple[Row, ...]
    round: RoundView | None
    progress: ProgressView | None
    time: TimeView | None
    findings: tuple[Finding, ...]
    consequences: tuple[Finding, ...]
    observations: tuple[Finding, ...]
    """What was noticed and is not known to be wrong."""
    recent: tuple[Happened, ...]
    next_step: str
    next_command: str
    now: datetime

    def to_json(self) -> dict[str, Any]:
        """Return the view as plain data with camelCase names; times as the API server writes them."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "state": self.state.value,
            "since": _text(self.since),
            "reason": self.reason,
            "created": _text(self.created),
            "ready": self.ready,
            "succeeded": self.succeeded,
            "wanted": self.wanted,
            "restarts": self.restarts.total,
            "countedRestarts": self.restarts.counted,
            "failsAtRestart": self.restarts.ends_at,
            "queue": _camel(asdict(self.queue)) if self.queue else None,
            "rows": [_camel(asdict(row)) for row in self.rows],
            "round": _camel(asdict(self.round)) if self.round else None,
            "progress": _camel(asdict(self.progress)) if self.progress else None,
            "time": _camel(asdict(self.time)) if self.time else None,
            "findings": [finding_json(finding) for finding in self.findings],
            "consequences": [finding.cause.name for finding in self.consequences],
            "observations": [finding_json(finding) for finding in self.observations],
            "recent": [_camel(asdict(happened)) for happened in self.recent],
            "next": {"text": self.next_step, "command": self.next_command},
        }


def make_job_view(seen: Seen) -> JobView:
    """Return the view of this snapshot."""
    shown, diagnosis, made = state.decide(seen), diagnose(seen), rows.make_rows(seen)
    step, command = _next(seen, shown.state, diagnosis.findings or diagnosis.observations)
    return JobView(
        name=seen.name,
        namespace=seen.namespace,
        state=shown.state,
        since=shown.since,
        reason=diagnosis.findings[0].why if diagnosis.findings else shown.reason,
        created=reading.created_at(seen.job),
        ready=sum(map(_is_ready, made)) if seen.readable else _counted(seen, "active"),
        succeeded=sum(row.phase == "Succeeded" for row in made) if seen.readable else _counted(seen, "succeeded"),
        wanted=seen.wanted_pods(),
        restarts=restarts.count(seen),
        queue=queue_view(seen),
        rows=made,
        round=_round(seen),
        progress=_progress(seen),
        time=time_view(seen),
        findings=diagnosis.findings,
        consequences=diagnosis.consequences,
        observations=diagnosis.observations,
        recent=history.recent(seen),
        next_step=step,
        next_command=command,
        now=seen.now,
    )


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as plain data."""
    return {
        "cause": finding.cause.name,
        "why": finding.why,
        "pods": list(finding.pods),
        "evidence": [{"source": evidence.source, "text": evidence.text} for evidence in finding.evidence],
        "remedy": [{"text": step.text, "command": step.command} for step in finding.steps],
    }


def _round(seen: Seen) -> RoundView | None:
    elastic = reading.part(seen.status, "elastic")
    if not elastic:
        return None
    last = reading.part(elastic, "lastRestart")
    words = ": ".join(str(last[key]) for key in ("reason", "message") if last.get(key))
    return RoundView(
        id=str(elastic.get("round") or ""),
        members=reading.whole(elastic.get("members")),
        workers=reading.whole(elastic.get("worldSize")),
        restarts=reading.whole(elastic.get("restarts")) or 0,
        max_restarts=restarts.most_inside(seen),
        window_seconds=restarts.window(seen),
        last_restart_at=read_time(last.get("time")),
        last_restart=reading.line_of(words),
        without=tuple(str(pod) for pod in elastic.get("without") or ()),
        survive=survival.words(elastic.get("survive")),
    )


def _progress(seen: Seen) -> ProgressView | None:
    progress = reading.part(seen.status, "progress")
    if not progress:
        return None
    metrics = reading.part(progress, "metrics")
    return ProgressView(
        step=reading.whole(progress.get("step")),
        total=reading.whole(progress.get("total")),
        percent=reading.whole(progress.get("percent")),
        remaining_seconds=reading.whole(progress.get("remainingSeconds")),
        metrics={name: float(value) for name, value in metrics.items() if isinstance(value, int | float)},
        at=read_time(progress.get("time")),
    )


def _is_ready(row: Row) -> bool:
    return row.phase == "Running" and row.state == RUNNING


def _counted(seen: Seen, key: str) -> int:
    """Return a sum of the job's own counters of its pods."""
    roles = reading.part(seen.status, "replicaStatuses")
    return sum(reading.whole(reading.part(roles, role).get(key)) or 0 for role in roles)


def _next(seen: Seen, now: State, findings: tuple[Finding, ...]) -> tuple[str, str]:
    """Return what to do next: the first step of the remedy, or what mostly follows in this state."""
    job = seen.name, seen.namespace
    if findings:
        step = findings[0].steps[0]
        return step.text, step.command or f"pytorchjob doctor {seen.name} -n {seen.namespace}"
    if now in (State.TRAINING, State.RUNNING, State.RESTARTING, State.CRASHING):
        progress = f" `{advice.follow_progress(*job)}` shows the steps." if _progress(seen) else ""
        return f"Follow the output.{progress}", advice.follow_output(*job)
    if now in (State.SUCCEEDED, State.FAILED):
        return "Read the output.", advice.read_output(*job)
    if now is State.DELETING:
        return "", ""
    return "See what happens next.", f"{advice.show_status(*job)} --watch"


def _text(time: datetime | None) -> str | None:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ") if time else None


def _camel(values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields in the spelling of JSON."""
    result = {}
    for key, value in values.items():
        first, *others = key.split("_")
        name = first + "".join(word.capitalize() for word in others)
        result[name] = _text(value) if isinstance(value, datetime) else value
    return result
