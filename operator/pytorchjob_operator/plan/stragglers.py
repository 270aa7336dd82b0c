"""Ranks that are slower than the others: status.stragglers and its events, from the coordinator's report.

A new round has to be measured first. Until then the status keeps what the last round has shown, so that a restart
reports no rank a second time.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from pytorchjob_operator.coordinator_report import SlowRank
from pytorchjob_operator.model import JobStatus, PyTorchJob, StragglerStatus
from pytorchjob_operator.model.status import MAX_STRAGGLERS
from pytorchjob_operator.names import EventType, Reason
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.outcome import STOPPED, Outcome
from pytorchjob_operator.plan.writes import Event

_CHANGED = 10
"""Percentage points: a smaller change is not worth a write of the status."""


def fields(context: Context, outcome: Outcome, now: datetime) -> dict[str, Any]:
    """Return status.stragglers after this pass; a suspended job has none."""
    if outcome.phase in STOPPED:
        return {"stragglers": None}
    report = context.seen.report
    if report is None or report.stragglers is None:
        return {}
    nodes = {pod.name: pod.node for pod in context.seen.pods}
    stored = {(known.rank, known.pod): known for known in context.seen.job.status.stragglers or ()}
    found = (_shown(slow, nodes, stored.get((slow.rank, slow.pod)), now) for slow in report.stragglers)
    return {"stragglers": tuple(found)[:MAX_STRAGGLERS] or None}


def are_new(stored: JobStatus, new: JobStatus) -> bool:
    """Return whether the new status names other pods."""
    return _pods(stored) != _pods(new)


def events(job: PyTorchJob, status: JobStatus | None) -> Iterator[Event]:
    """Yield the pods that this status is the first to name, and those that it names no longer."""
    if status is None:
        return
    before, now = _pods(job.status), _pods(status)
    for pod in sorted(now - before):
        yield Event(Reason.STRAGGLER_FOUND, _found(pod, status), EventType.WARNING)
    if not status.completion_time:
        for pod in sorted(before - now):
            yield Event(Reason.STRAGGLER_RECOVERED, f"Pod {pod} is no longer slower than the others.")


def _pods(status: JobStatus) -> set[str]:
    return {straggler.pod for straggler in status.stragglers or ()}


def _found(pod: str, status: JobStatus) -> str:
    mine = [straggler for straggler in status.stragglers or () if straggler.pod == pod]
    ranks = ", ".join(str(straggler.rank) for straggler in mine)
    on = f" on node {mine[0].node}" if mine[0].node else ""
    noun, verb = ("Rank", "needs") if len(mine) == 1 else ("Ranks", "need")
    percent = max(straggler.percent for straggler in mine)
    place = next((straggler.place for straggler in mine if straggler.place), "")
    advice = (
        f"Most of it is work of its own at {place}: do it less often, or share it among the ranks."
        if place
        else "Check the node: its clock speed, temperature, memory and neighbours."
    )
    return (
        f"{noun} {ranks} ({pod}{on}) {verb} {percent} % more time outside collectives than the other ranks, which wait"
        f" for it. {advice}"
    )


def _shown(slow: SlowRank, nodes: dict[str, str], stored: StragglerStatus | None, now: datetime) -> StragglerStatus:
    new = StragglerStatus(
        rank=slow.rank,
        pod=slow.pod,
        node=nodes.get(slow.pod, ""),
        percent=max(slow.percent, 0),
        since=(now - timedelta(seconds=slow.age)).replace(microsecond=0),
        place=slow.place,
    )
    if stored is None or stored.node != new.node:
        return new
    percent = stored.percent if abs(new.percent - stored.percent) < _CHANGED else new.percent
    return new.model_copy(update={"since": stored.since, "percent": percent, "place": new.place or stored.place})
