"""What the coordinator's report means for the job: its end, status.elastic, status.progress, and its problems.

The coordinator loses its knowledge with its process. What it does not know stays as the status has it. Steps change all
the time: `progress_delay` decides how often they are written.
"""

from datetime import datetime, timedelta
from typing import Any

from pytorchjob_agent.contract.collectives import CollectiveFault
from pytorchjob_agent.contract.first_failure import FirstFailure
from pytorchjob_agent.contract.reasons import ShrinkState, TrainingReason
from pytorchjob_operator.coordinator_report import LastRestart, PhaseName, Report
from pytorchjob_operator.model import (
    CollectiveStatus,
    ElasticStatus,
    FirstFailureStatus,
    JobStatus,
    ProgressStatus,
    RestartStatus,
)
from pytorchjob_operator.model.status import LONGEST_MESSAGE
from pytorchjob_operator.observed import Observed, PodProblem
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.outcome import STOPPED, WITHOUT_PODS, Outcome, failed

STATUS_DELAY = timedelta(seconds=5)
"""A new round, restart or problem is in the status after this time; the status is not written more often."""
_LEAST_DELAY, _MOST_DELAY = timedelta(seconds=6), timedelta(seconds=60)
"""Between two writes of progress: never less than 5 s, as the stored time lacks a part of a second."""
_WRITES = 60
"""How often progress is written in the time that a job has run, or in the time that remains."""
_LIKELIEST_FIRST = (
    TrainingReason.COORDINATOR_DEFECT,
    TrainingReason.DUPLICATE_REPLICA,
    TrainingReason.AGENT_REFUSED,
    TrainingReason.AGENT_LIMIT,
    TrainingReason.PEER_UNREACHABLE,
    TrainingReason.UNEQUAL_VERSIONS,
    TrainingReason.COORDINATOR_UNREACHABLE,
    TrainingReason.WAITING,
    TrainingReason.CHECKPOINTS,
    TrainingReason.CLOCKS_DIFFER,
)
_STALLS = (TrainingReason.COORDINATOR_DEFECT, TrainingReason.TIMED_OUT)
"""The reasons for which a job is stalled."""
_STALLED = "the last rendezvous failed: no round starts until an agent joins again"
_LARGEST = 1e15
_MOST = 2**53 - 1
_MOST_REMAINING = 86_400
"""Bounds of the numbers that a status may contain."""


def verdict(context: Context) -> Outcome | None:
    """Return the failure that the coordinator reports, with its message; None otherwise."""
    ended = context.seen.report.ended if context.seen.report else None
    if ended is None or not ended.failed:
        return None
    return failed(ended.reason, ended.message, _first(ended.first))


def restarts(context: Context) -> int:
    """Return how many restarts inside pods count against backoffLimit; 0 if they have a budget of their own."""
    policy = context.job.spec.elastic_policy
    return 0 if policy is not None and policy.max_restarts is not None else known_restarts(context)


def problem(context: Context, outcome: Outcome) -> PodProblem | None:
    """Return the problem of a job that is not over: the likeliest cause, and the messages of all problems."""
    problems = _problems(context.seen.report) if context.seen.report else {}
    if not problems or outcome.phase in WITHOUT_PODS:
        return None
    return PodProblem(next(iter(problems)), "; ".join(problems.values())[:LONGEST_MESSAGE])


def _problems(report: Report) -> dict[str, str]:
    """Return the problems, the likeliest cause first. A stalled job always has one: why no round starts."""
    stalled = report.phase is PhaseName.STALLED
    found = {str(reason): message for reason, message in report.problems.items()}
    if stalled and TrainingReason.COORDINATOR_DEFECT not in found:
        found[TrainingReason.TIMED_OUT.value] = found.pop(TrainingReason.WAITING, _STALLED)
    order = [reason.value for reason in (*(_STALLS if stalled else ()), *_LIKELIEST_FIRST)]
    return {reason: found[reason] for reason in dict.fromkeys([*order, *sorted(found)]) if reason in found}


def fields(context: Context, outcome: Outcome, now: datetime) -> dict[str, Any]:
    """Return status.elastic and status.progress after this pass; a suspended job has neither."""
    if outcome.phase in STOPPED:
        return {"elastic": None, "progress": None}
    stored, report = context.seen.job.status, context.seen.report
    if report is None:
        return {}
    return {
        "elastic": _elastic(stored.elastic, report, known_restarts(context), now),
        "progress": _progress(stored.progress, report, now),
    }


def delay(stored: JobStatus, new: JobStatus, now: datetime) -> timedelta:
    """Return how long a status may wait in which only these fields, or counters, are new."""
    same = {"progress": stored.progress, "columns": stored.columns, "goodput": stored.goodput}
    only_steps = new.model_copy(update=same) == stored
    if not only_steps or stored.progress is None or stored.progress.time is None:
        return STATUS_DELAY
    return max(stored.progress.time + progress_delay(stored, now) - now, timedelta(0))


def progress_delay(stored: JobStatus, now: datetime) -> timedelta:
    """Return the time between two writes of progress: short for a young job and at the end, up to a minute between.

    A fleet of long jobs then costs the API server one write per job and minute, and a short job is shown as it trains.
    """
    ran = now - stored.start_time if stored.start_time is not None else timedelta(0)
    left = None if stored.progress is None else stored.progress.remaining_seconds
    span = ran if left is None else min(ran, timedelta(seconds=min(left, _MOST_REMAINING)))
    return min(max(span / _WRITES, _LEAST_DELAY), _MOST_DELAY)


def next_check(context: Context, outcome: Outcome) -> datetime | None:
    """Return when to ask for new steps, which the coordinator does not announce; None if not needed.

    It announces only the first progress of a round, and that may still be of the previous round. The report has none
    between it and the first step of the new workers. So a job that has shown progress is checked as long as it runs.
    """
    report, stored = context.seen.report, context.seen.job.status.progress
    if report is None or not report.running or outcome.phase in WITHOUT_PODS:
        return None
    if stored is None and not _has_progress(report):
        return None
    return context.seen.now + progress_delay(context.seen.job.status, context.seen.now)


def known_restarts(context: Context) -> int:
    """Return the restarts over the job's life. A new coordinator learns them from here: it may not know them all."""
    stored = context.seen.job.status.elastic
    known = stored.restarts if stored else None
    return max(known or 0, context.seen.report.restarts if context.seen.report else 0)


def has_trained(seen: Observed) -> bool:
    """Return whether a round of this job is known, from its status: the present coordinator may not know it."""
    stored = seen.job.status.elastic
    return stored is not None and bool(stored.round)


def _elastic(stored: ElasticStatus | None, report: Report, count: int, now: datetime) -> ElasticStatus | None:
    if not report.round:
        return stored
    before = stored or ElasticStatus()
    return ElasticStatus(
        round=report.round,
        members=report.members,
        world_size=report.world or before.world_size,
        restarts=count or None,
        without=report.without or None,
        survive=None if report.survive is ShrinkState.OFF else report.survive,
        last_restart=_last_restart(before.last_restart, report.last_restart, now),
    )


def _last_restart(stored: RestartStatus | None, last: LastRestart | None, now: datetime) -> RestartStatus | None:
    """Return the newest restart. The report has its age; a restart that is already stored keeps its time."""
    if last is None:
        return stored
    time = (now - timedelta(seconds=last.age)).replace(microsecond=0)
    if stored and (stored.reason, stored.message) == (last.reason, last.message) and time - stored.time < STATUS_DELAY:
        return stored
    return RestartStatus(time=time, reason=last.reason, message=last.message, first=_first(last.first))


def _first(failure: FirstFailure | None) -> FirstFailureStatus | None:
    if failure is None:
        return None
    return FirstFailureStatus(
        kind=failure.kind,
        rank=failure.rank,
        pod=failure.pod,
        exit_code=failure.exit_code or None,
        error=failure.error[:128] or None,
        step=None if failure.step is None else min(failure.step, _MOST),
        message=failure.message[:1024] or None,
        collective=_collective(failure.collective),
        place=failure.place[:256] or None,
    )


def _collective(fault: CollectiveFault | None) -> CollectiveStatus | None:
    if fault is None:
        return None
    return CollectiveStatus(
        kind=fault.kind,
        group=fault.group,
        number=min(fault.number, _MOST),
        call=fault.call or None,
        own=fault.own or None,
        place=fault.place[:256] or None,
    )


def _progress(stored: ProgressStatus | None, report: Report, now: datetime) -> ProgressStatus | None:
    if not _has_progress(report):
        return stored
    new = ProgressStatus(
        step=None if report.step is None else min(report.step, _MOST),
        total=None if report.total is None else min(report.total, _MOST),
        percent=_percent(report),
        metrics={name: value for name, value in report.metrics.items() if abs(value) <= _LARGEST} or None,
        time=now,
    )
    if stored is not None and _reported(stored) == _reported(new):
        return stored
    left = _remaining(stored, new) if report.remaining is None else min(max(report.remaining, 0), _MOST)
    rate = float(f"{report.rate:.3g}") if 0 < report.rate <= _LARGEST else None
    return new.model_copy(update={"remaining_seconds": left, "steps_per_second": rate})


def _has_progress(report: Report) -> bool:
    return report.step is not None or report.percent is not None or bool(report.metrics)


def _percent(report: Report) -> int | None:
    """Return the percentage: as the script shows it, or by its steps."""
    if report.percent is not None:
        return min(max(report.percent, 0), 100)
    return min(100 * report.step // report.total, 100) if report.total and report.step is not None else None


def _reported(progress: ProgressStatus) -> tuple[Any, ...]:
    return progress.step, progress.total, progress.percent, progress.metrics


def _remaining(before: ProgressStatus | None, now: ProgressStatus) -> int | None:
    """Return the remaining seconds at the speed since the last status, which includes steps that a restart repeats."""
    if before is None or before.step is None or before.time is None or None in (now.step, now.total, now.time):
        return None
    assert now.step is not None
    assert now.total is not None
    assert now.time is not None
    seconds, steps = (now.time - before.time).total_seconds(), now.step - before.step
    if steps <= 0 or seconds <= 0:
        return before.remaining_seconds
    return min(max(round((now.total - now.step) * seconds / steps), 0), _MOST)
