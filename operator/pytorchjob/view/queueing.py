"""What a job, or further workers of one that trains, wait for in a queue of Kueue: at which place, since when, why."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pytorchjob.view import reading
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_operator import names
from pytorchjob_operator.workload import Standing, Workload

MOST = 1000
"""As many waiting Workloads Kueue tells at once."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the first waiting Workload of a job is in its queue."""

    position: int
    """1: it is the next one."""
    waiting: int
    """Workloads that wait in the queue; MOST: at least so many."""
    overall: int
    """Its place among those of all queues that share the quota (its ClusterQueue)."""


@dataclass(frozen=True, slots=True)
class QueueView:
    """A job, or a part of it, that waits in a queue."""

    name: str
    since: datetime | None
    reason: str
    """A code of the operator; empty: unknown."""
    message: str
    """What Kueue says."""
    place: Place | None
    """None: it is unknown."""
    pods: Sequence[str]
    """Those that wait while the job trains; empty: the whole job waits."""


def place_of(job: Object, waiting: Sequence[Object] | None) -> Place | None:
    """Return the place of a job among the Workloads of its queue; None: it is not there, or they are unknown."""
    own = next((each for each in waiting or () if reading.belongs(each, job)), None)
    if own is None:
        return None
    position, overall = own.get("positionInLocalQueue"), own.get("positionInClusterQueue")
    return Place(int(position or 0) + 1, len(waiting or ()), int(overall or 0) + 1)


def queue_view(seen: Seen) -> QueueView | None:
    """Return what the job waits for; None: nothing, or it has no queue."""
    if not seen.queue or seen.ended:
        return None
    if seen.suspended:
        shown = whole_job(seen.job, seen.waiting)  # its message is the first one with its reason
        return _with(shown, seen.workloads[0]) if seen.workloads else shown
    first = f"{names.workload_name(seen.name)}."
    found = [each for each in seen.workloads or () if reading.name_of(each).startswith(first) and _waits(each)]
    if not found:
        return None
    found.sort(key=reading.name_of)
    since = min(filter(None, map(reading.created_at, found)), default=None)
    pods = tuple(reading.name_of(each).removeprefix(first) for each in found)
    return _with(QueueView(seen.queue, since, "", "", place_of(seen.job, seen.waiting), pods), found[0])


def whole_job(job: Object, waiting: Sequence[Object] | None) -> QueueView:
    """Return what a job without pods waits for; `waiting`: the Workloads of its queue, None: they are unknown."""
    since = reading.changed_at(reading.condition(job, "Suspended")) or reading.created_at(job)
    said = reading.condition(job, "Waiting")
    reason, message = str(said.get("reason") or ""), reading.line_of(said.get("message"), 600)
    return QueueView(reading.queue_of(job), since, reason, message, place_of(job, waiting), ())


def _with(shown: QueueView, workload: Object) -> QueueView:
    found = Workload.from_api(workload)
    return replace(shown, reason=found.waits_for, message=reading.line_of(found.message, 600))


def _waits(workload: Object) -> bool:
    return Workload.from_api(workload).standing is not Standing.ADMITTED
