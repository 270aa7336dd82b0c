"""The runs of this machine as a cluster that can only be read, by `status`, `logs`, `events` and `list`.

Its objects are what `pytorchjob run` records. A job whose run ended before the job did has failed.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pytorchjob.cluster.api import DELETED, Change, LogRequest, Object
from pytorchjob.cluster.errors import JobMissing, Missing, Rejected
from pytorchjob.local.record import Recorded, runs
from pytorchjob.view import reading
from pytorchjob.view.state import State
from pytorchjob_operator.problem import read_time

_POLL_SECONDS = 0.2
_READ_ONLY = "a job on this machine is changed by its file and SIGHUP, and ends by Ctrl-C"


class MachineCluster:
    """Implements `Cluster` with the records of this user's runs."""

    namespace = "default"

    def job(self, name: str) -> Object:
        """See `Cluster`."""
        return _job(self._run(name))

    def jobs(self, selector: str = "", *, all_namespaces: bool = False) -> Sequence[Object]:
        """See `Cluster`."""
        if selector:
            raise Rejected("jobs of this machine cannot be selected by labels", "leave out --selector")
        return [_job(run) for run in runs()]

    def pods(self, job: str) -> Sequence[Object]:
        """See `Cluster`."""
        return _pods(self._run(job))

    def events(self, names: Sequence[str] = ()) -> Sequence[Object]:
        """See `Cluster`."""
        found = (event for run in runs() for event in reading.items(_state(run), "events"))
        return [dict(event) for event in found if not names or reading.name_of(event) in names]

    def nodes(self) -> Sequence[Object] | None:
        """See `Cluster`."""
        return None

    def read(self, path: str) -> Object | None:
        """See `Cluster`; only pods can be read by a path."""
        name = path.rpartition("/")[2]
        found = (pod for run in runs() for pod in _pods(run) if "/pods/" in path and reading.name_of(pod) == name)
        return next(found, None)

    def create(self, body: Object, *, dry_run: bool = False) -> Object:
        """See `Cluster`."""
        raise Rejected(_READ_ONLY)

    def patch(self, name: str, change: Object, *, subresource: str = "", dry_run: bool = False) -> Object:
        """See `Cluster`."""
        raise Rejected(_READ_ONLY)

    def delete(self, name: str, *, foreground: bool = False) -> None:
        """See `Cluster`."""
        raise Rejected(_READ_ONLY)

    def watch(self, job: str | None = None) -> Iterator[Change]:
        """See `Cluster`; reads the records now and then."""
        return _changes(lambda: self.jobs() if job is None else [self.job(job)])

    def watch_pods(self, job: str) -> Iterator[Change]:
        """See `Cluster`; reads the record now and then."""
        return _changes(lambda: self.pods(job))

    @contextmanager
    def log(self, request: LogRequest) -> Iterator[Iterator[bytes]]:
        """See `Cluster`."""
        found = ((run, paths) for run in runs() if (paths := run.logs(request.pod)))
        run, paths = next(found, (None, []))
        if request.previous:
            paths = paths[:-1]
        if run is None or not paths:
            raise Missing(f"the container {request.container} of {request.pod} has no such log")
        yield _lines(run, request, paths[-1])

    def _run(self, name: str) -> Recorded:
        found = next((run for run in runs() if reading.name_of(_job(run)) == name), None)
        if found is None:
            raise JobMissing(
                f"there is no job named {name} on this machine", "`pytorchjob list --local` shows those that there are"
            )
        return found


def _state(run: Recorded) -> Object:
    try:
        return run.state()
    except (OSError, ValueError):
        return {}


def _job(run: Recorded) -> Object:
    job: Object = {"metadata": {}, **(_state(run).get("job") or {})}
    if not run.is_over() or reading.ended(job):
        return job
    status = dict(reading.part(job, "status"))
    end = {
        "type": State.FAILED.value,
        "status": "True",
        "reason": "RunStopped",
        "message": "`pytorchjob run` was stopped before the job had ended.",
    }
    earlier = [{**each, "status": "False"} for each in reading.items(status, "conditions")]
    return {**job, "status": {**status, "conditions": [*earlier, end]}}


def _pods(run: Recorded) -> list[Object]:
    return [dict(pod) for pod in reading.items(_state(run), "pods")]


def _lines(run: Recorded, request: LogRequest, path: Path) -> Iterator[bytes]:
    """Yield the lines of a log; a log that is followed ends with its container."""
    tail, rest = request.tail, b""
    with path.open("rb") as log:
        while True:
            is_last = run.is_over() or run.logs(request.pod)[-1:] != [path] or _has_ended(run, request.pod)
            *whole, rest = (rest + log.read()).split(b"\n")
            lines = [line + b"\n" for line in whole if _is_wanted(line, request.since)]
            yield from lines if tail is None else lines[max(len(lines) - tail, 0) :]
            tail = None
            if not request.follow or is_last:
                return
            time.sleep(_POLL_SECONDS)


def _has_ended(run: Recorded, pod: str) -> bool:
    found = next((each for each in _pods(run) if reading.name_of(each) == pod), None)
    return found is None or reading.has_finished(found)


def _is_wanted(line: bytes, since: datetime | None) -> bool:
    stamp = read_time(line.partition(b" ")[0].decode(errors="replace"))
    return since is None or stamp is None or stamp >= since


def _changes(read: Callable[[], Sequence[Object]]) -> Iterator[Change]:
    known: dict[str, Object] = {}
    while True:
        found = {reading.uid_of(each) or reading.name_of(each): each for each in read()}
        for uid, each in found.items():
            if each != known.get(uid):
                yield Change("MODIFIED" if uid in known else "ADDED", each)
        for uid in known.keys() - found.keys():
            yield Change(DELETED, known[uid])
        known = found
        time.sleep(_POLL_SECONDS)
