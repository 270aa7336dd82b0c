"""The screen of a job as a value: `make_job_view(seen)`. Printers turn it into text or JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pytorchjob.view import history, reading, rows, state
from pytorchjob.view.causes.cause import Finding
from pytorchjob.view.causes.table import diagnose
from pytorchjob.view.history import Happened
from pytorchjob.view.rows import RUNNING, Row
from pytorchjob.view.seen import Seen
from pytorchjob.view.state import State
from pytorchjob_operator.names import CONTAINER
from pytorchjob_operator.problem import read_time


@dataclass(frozen=True, slots=True)
class RoundView:
    """The group that trains now."""

    id: str
    members: int | None
    workers: int | None
    restarts: int
    last_restart_at: datetime | None
    last_restart: str


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
    """Pods of which the main container runs, or that have succeeded."""
    wanted: int
    restarts: int
    """Of containers, of replaced pods, and of workers inside their pods."""
    rows: tuple[Row, ...]
    round: RoundView | None
    progress: ProgressView | None
    findings: tuple[Finding, ...]
    consequences: tuple[Finding, ...]
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
            "wanted": self.wanted,
            "restarts": self.restarts,
            "rows": [_camel(asdict(row)) for row in self.rows],
            "round": _camel(asdict(self.round)) if self.round else None,
            "progress": _camel(asdict(self.progress)) if self.progress else None,
            "findings": [finding_json(finding) for finding in self.findings],
            "consequences": [finding.cause.name for finding in self.consequences],
            "recent": [_camel(asdict(happened)) for happened in self.recent],
            "next": {"text": self.next_step, "command": self.next_command},
        }


def make_job_view(seen: Seen) -> JobView:
    """Return the view of this snapshot."""
    shown, diagnosis, made = state.decide(seen), diagnose(seen), rows.make_rows(seen)
    round_ = _round(seen)
    replaced = reading.whole(seen.status.get("restarts")) or 0
    step, command = _next(seen, shown.state, diagnosis.findings)
    return JobView(
        name=seen.name,
        namespace=seen.namespace,
        state=shown.state,
        since=shown.since,
        reason=diagnosis.findings[0].why if diagnosis.findings else shown.reason,
        created=reading.created_at(seen.job),
        ready=sum(map(_is_ready, made)) if seen.readable else _counted(seen),
        wanted=seen.wanted_pods(),
        restarts=replaced + sum(row.restarts for row in made) + (round_.restarts if round_ else 0),
        rows=made,
        round=round_,
        progress=_progress(seen),
        findings=diagnosis.findings,
        consequences=diagnosis.consequences,
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
        last_restart_at=read_time(last.get("time")),
        last_restart=reading.line_of(words),
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
    return row.phase == "Succeeded" or (row.phase == "Running" and row.state == RUNNING)


def _counted(seen: Seen) -> int:
    """Return how many pods run or have succeeded, by the job's own counters."""
    roles = reading.part(seen.status, "replicaStatuses")
    counts = (reading.part(roles, role).get(key) for role in roles for key in ("active", "succeeded"))
    return sum(reading.whole(count) or 0 for count in counts)


def _next(seen: Seen, now: State, findings: tuple[Finding, ...]) -> tuple[str, str]:
    """Return what to do next: the first step of the remedy, or what mostly follows in this state."""
    where = f"{seen.name} -n {seen.namespace}"
    if findings:
        step = findings[0].steps[0]
        return step.text, step.command or f"pytorchjob doctor {where}"
    if now in (State.TRAINING, State.RUNNING, State.RESTARTING, State.CRASHING, State.SUCCEEDED, State.FAILED):
        selector = f"training.kubeflow.org/job-name={seen.name}"
        return "Read the logs.", f"kubectl logs -n {seen.namespace} -l {selector} -c {CONTAINER} --prefix --tail=20"
    if now is State.DELETING:
        return "", ""
    return "See what happens next.", f"pytorchjob status {where} --watch"


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
