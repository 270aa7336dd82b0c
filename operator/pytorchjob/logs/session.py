"""Reads the logs of a job: a thread for each pod, and when following, one for the job and one for its pods."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Condition, Lock, Thread
from typing import TypeVar

from pytorchjob.cluster.api import Change, Cluster, Object
from pytorchjob.cluster.errors import ApiServerUnreachable, ClusterError, JobMissing
from pytorchjob.logs.containers import GONE, LogPhase, LogState, container_names, log_state, short_name
from pytorchjob.logs.ending import EndOfJob
from pytorchjob.logs.funnel import Funnel
from pytorchjob.logs.lines import Line, from_moment
from pytorchjob.logs.merge import Merger
from pytorchjob.logs.printing import Entry
from pytorchjob.logs.ranks import PodRanks, Ranks, pod_ranks
from pytorchjob.logs.reader import ContainerPlace, Reader, SessionOver
from pytorchjob.logs.resume import Resume
from pytorchjob.view.reading import ended

_WAIT_SECONDS = 0.3
"""How long a line waits for earlier lines of other pods."""
_OPENING_SECONDS = 3.0
"""How long the first lines wait for the first lines of other pods."""
QUEUE_BYTES = 256 * 1024
"""Memory for the waiting lines of a pod."""
_TICK_SECONDS = 0.2
_REOPEN_SECONDS = 1.0
_CHECK_SECONDS = 2.0
"""How often the job is read while it has no log to follow."""

T = TypeVar("T")
Write = Callable[[Sequence[Entry]], None]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which lines a person wants to read."""

    container: str
    previous: bool = False
    since: datetime | None = None
    tail: int | None = None
    ranks: Ranks | None = None
    pattern: re.Pattern[str] | None = None


class _Log:
    """The session's side of a reader: what is known of its pod, and which of its lines are wanted."""

    def __init__(
        self, session: "LogSession", place: ContainerPlace, ranks: PodRanks, state: LogState, number: int
    ) -> None:
        self.place, self._number, self._ranks = place, number, ranks
        self.is_done = self.current = False
        self._options, self._funnel, self._session_note = session.options, session.funnel, session.note
        self._changed = Condition()
        self._state = state

    def update(self, state: LogState) -> None:
        """Take what another version of the pod shows; an end is final, whatever a list shows that was made before."""
        with self._changed:
            if self._state.phase is not LogPhase.GONE and (
                self._state.phase is not LogPhase.ENDED or state.phase is LogPhase.GONE
            ):
                self._state = state
            self._changed.notify_all()

    def state(self) -> LogState:
        """See `ReaderLink`."""
        return self._state

    def emit(self, line: Line) -> None:
        """See `ReaderLink`; lines that are not wanted end here."""
        origin, options = self._ranks.origin(line.text), self._options
        if (options.ranks is not None and not self._ranks.shows(origin, options.ranks)) or (
            options.pattern is not None and not options.pattern.search(origin.text.decode(errors="replace"))
        ):
            self._funnel.check()
            return
        number = self._number if origin.rank is None else origin.rank
        self._funnel.put(self.place, line.at, Entry(origin.label, number, line.stamp, origin.text), len(origin.text))

    def note(self, text: str) -> None:
        """See `ReaderLink`."""
        self._session_note(f"{self._ranks.name}: {text}")

    def is_current(self, current: bool) -> None:
        """See `ReaderLink`."""
        self.current = current

    def idle(self) -> None:
        """See `ReaderLink`."""
        self._funnel.check()
        self._funnel.ready(self.place)

    def pause(self, seconds: float) -> None:
        """See `ReaderLink`."""
        self._funnel.check()
        with self._changed:
            self._changed.wait(seconds)
        self._funnel.check()


class LogSession:
    """One call of `pytorchjob logs`."""

    def __init__(self, cluster: Cluster, job: str, options: LogOptions, note: Callable[[str], None]) -> None:
        """Prepare to read the logs of `job`; `note` receives sentences about the logs themselves, from any thread."""
        self.options, self.note = options, note
        self.funnel: Funnel[Entry]
        self._cluster, self._job = cluster, job
        self._logs: dict[str, _Log] = {}
        self._lock = Lock()
        self._error: Exception | None = None
        self._ending = EndOfJob()
        self._job_end = ""
        self._checked_at = time.monotonic()

    def read(self, pods: Sequence[Object], write: Write) -> None:
        """Write what the logs of these pods have now; raises `ClusterError` if one of them cannot be read."""
        self.funnel = Funnel(Merger(float("inf"), QUEUE_BYTES))
        action = Reader.previous if self.options.previous else Reader.snapshot
        try:
            for pod in pods:
                self._start(pod, action, is_new=False)
            while not self.funnel.is_over:
                write(self.funnel.take(_TICK_SECONDS))
            self._raise()
        finally:
            self.funnel.stop()

    def follow(self, pods: Sequence[Object], write: Write) -> bool:
        """Write the lines of these pods, and of all that come later, until the job ends; returns whether it succeeded.

        Raises `ClusterError` if the job is deleted, or if its logs cannot be read to their end.
        """
        self.funnel = Funnel(Merger(_WAIT_SECONDS, QUEUE_BYTES))
        try:
            for pod in pods:
                self._start(pod, Reader.follow, is_new=False)
            self._spawn("pods", self._watch_pods)
            self._spawn("job", self._watch_job)
            while not self._is_complete():
                self._write(write)
            write(self.funnel.take_rest())
        finally:
            self.funnel.stop()
        if not self._job_end:
            raise ClusterError(f"PyTorchJob {self._job} was deleted while its logs were followed")
        return self._job_end == "Succeeded"

    def _write(self, write: Write) -> None:
        batch = self.funnel.take(_TICK_SECONDS)
        if batch:
            write(batch)
            self._ending.line_at = time.monotonic()
        self._raise()

    def _is_complete(self) -> bool:
        with self._lock:
            left = [log for log in self._logs.values() if not log.is_done]
        now = time.monotonic()
        if not left and self._ending.ended_at is None and now - self._checked_at >= _CHECK_SECONDS:
            self._check_job(now)
        if self._ending.is_complete(now, [(log.state(), log.current) for log in left]):
            return True
        if self._ending.is_late(now):
            pods = ", ".join(log.place.pod for log in left[:3])
            raise ApiServerUnreachable(
                f"the rest of the logs of {pods} cannot be read", "run the command again without -f"
            )
        return False

    def _check_job(self, now: float) -> None:
        """Read the job: it may have been deleted before its watch began."""
        self._checked_at = now
        try:
            self._job_end = ended(self._cluster.job(self._job))
            is_over = bool(self._job_end)
        except JobMissing:
            is_over = True
        except ApiServerUnreachable:
            return
        if is_over:
            self._end()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _start(self, pod: Object, action: Callable[[Reader], None], *, is_new: bool) -> None:
        """Begin to read a pod's log; a pod that comes while others are followed is read from its first line."""
        options, ranks = self.options, pod_ranks(pod, short_name(pod), self.options.container)
        if options.ranks is not None and ranks.fixed and not options.ranks.has_any(ranks.fixed):
            return
        if options.container not in container_names(pod):
            return
        place = _place(pod, self._cluster.namespace, options.container)
        state = log_state(pod, options.container)
        log = self._logs[place.uid] = _Log(self, place, ranks, state, len(self._logs))
        self.funnel.add(place, None if is_new else _OPENING_SECONDS)
        tail = None if is_new else options.tail
        reader = Reader(self._cluster, place, log, Resume(self._floor(state, is_new)), tail)
        self._spawn(place.pod, lambda: self._read(log, reader, action))

    def _floor(self, state: LogState, is_new: bool) -> int | None:
        """From which moment on lines are wanted: those of earlier containers are not, if the pod is not new."""
        since = self.options.since
        floors = [from_moment(since)] if since is not None else []
        if state.started is not None and state.restarts and not is_new and not self.options.previous:
            floors.append(state.started)
        return max(floors, default=None)

    def _read(self, log: _Log, reader: Reader, action: Callable[[Reader], None]) -> None:
        try:
            action(reader)
        except SessionOver:
            pass
        except Exception as error:  # the main thread raises it
            self._error = error
        finally:
            self.funnel.close(log.place)
            log.is_done = True

    def _spawn(self, name: str, action: Callable[[], None]) -> None:
        def run() -> None:
            try:
                action()
            except SessionOver:
                pass
            except Exception as error:  # the main thread raises it
                self._error = error

        Thread(target=run, name=name, daemon=True).start()

    def _watch_pods(self) -> None:
        for change in self._changes(lambda: self._cluster.watch_pods(self._job)):
            self._take_pod(change)

    def _take_pod(self, change: Change) -> None:
        place = _place(change.object, self._cluster.namespace, self.options.container)
        with self._lock:
            log = self._logs.get(place.uid)
            if log is None and not change.is_deleted:
                for other in self._logs.values():
                    if other.place.pod == place.pod:
                        other.update(GONE)
                self._start(change.object, Reader.follow, is_new=True)
            elif log is not None:
                log.update(GONE if change.is_deleted else log_state(change.object, self.options.container))

    def _watch_job(self) -> None:
        for change in self._changes(lambda: self._cluster.watch(self._job)):
            self._job_end = ended(change.object)
            if self._job_end or change.is_deleted:
                self._end()
                return

    def _end(self) -> None:
        """The job has ended: its pods, as they are at this moment, have all its lines."""
        for pods in self._changes(lambda: iter([self._cluster.pods(self._job)])):
            for pod in pods:
                self._take_pod(Change("MODIFIED", pod))
            present = {pod["metadata"].get("uid") for pod in pods}
            with self._lock:
                for uid, log in self._logs.items():
                    if uid not in present:
                        log.update(GONE)
        self._ending.ended_at = time.monotonic()

    def _changes(self, watch: Callable[[], Iterator[T]]) -> Iterator[T]:
        """Yield the changes; begin again if the API server does not answer."""
        while True:
            try:
                yield from watch()
                return
            except ApiServerUnreachable:
                self.funnel.check()
                time.sleep(_REOPEN_SECONDS)


def _place(pod: Object, namespace: str, container: str) -> ContainerPlace:
    meta = pod["metadata"]
    return ContainerPlace(namespace, meta["name"], meta.get("uid") or meta["name"], container)
