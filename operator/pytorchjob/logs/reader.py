"""Reads the log of one container of one pod to its end, over restarts and lost connections.

Each pass opens the current container's log, checks that the pod is still the same, reads the rest of the previous
container's log, and only then the current one. So it needs no knowledge of which container the node answered for: if
the container has restarted meanwhile, the previous log holds what is missing. A stream that ends proves
nothing, because the API server ends it in good order too when it loses the node. Only the log of a container that has
ended is read to its end, until two readings agree.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from pytorchjob.cluster.api import Cluster, LogRequest
from pytorchjob.cluster.errors import ApiServerUnreachable, ClusterError, NoCluster, NoPermission
from pytorchjob.logs.containers import LogPhase, LogState
from pytorchjob.logs.lines import Line, is_whole, parse, to_moment
from pytorchjob.logs.resume import Resume, ResumedStream

_FATAL = (NoPermission, NoCluster)
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 4.0
"""Seconds between two passes; the longest is shorter than the time in which the logs of an ended job settle."""
_DOUBLINGS = 6
_REPEATS = 2
"""Further readings of a log that does not show the last known line, before it counts as gone."""
_GONE_AFTER = 2
"""Passes in a row that do not find the pod, before it counts as gone."""
_REFUSED_AFTER = 5
"""Passes in a row that the node refuses, before the log of an ended container counts as gone."""
_ATTEMPTS = 5
"""Failures in a row, before a log that is not followed cannot be read."""


class SessionOver(Exception):  # noqa: N818 -- it is not an error
    """The session is over."""


class Replaced(Exception):  # noqa: N818 -- it is not an error
    """The pod does not exist, or another pod has its name."""


class ReaderLink(Protocol):
    """What a reader may use of the session. All methods but `state` raise `SessionOver` when the session is over."""

    def state(self) -> LogState:
        """Return what the newest known version of the pod shows."""

    def emit(self, line: Line) -> None:
        """Pass a line on; waits while there is no room."""

    def note(self, text: str) -> None:
        """Report something about the log itself."""

    def is_current(self, current: bool) -> None:
        """A stream is open or all is read that the node has; False: a request has failed."""

    def idle(self) -> None:
        """There is no line to wait for now."""

    def pause(self, seconds: float) -> None:
        """Wait, at most until `state` changes."""


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """A container of a pod."""

    namespace: str
    pod: str
    uid: str
    container: str

    @property
    def path(self) -> str:
        """Where the API server has the pod."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.pod}"


@dataclass(slots=True)
class _Failures:
    """Passes in a row without a new line, and why."""

    idle: int = 0
    replaced: int = 0
    refused: int = 0
    cut: bool = False

    @property
    def pause(self) -> float:
        """Seconds until the next pass."""
        return min(_SHORTEST_PAUSE * 2.0 ** min(self.idle, _DOUBLINGS), _LONGEST_PAUSE)


class Reader:
    """Reads one log; `follow`, `snapshot` or `previous` is called once."""

    def __init__(
        self, cluster: Cluster, place: ContainerPlace, link: ReaderLink, resume: Resume, tail: int | None = None
    ) -> None:
        """Begin at the end of what `resume` has taken, or `tail` lines before the end of the log."""
        self._cluster, self._place, self._link = cluster, place, link
        self._resume, self._tail = resume, tail
        self._taken = 0
        self._searches = 0
        self._notes = set[str]()

    def follow(self) -> None:
        """Read until the container has ended for good, or its pod is gone."""
        failures = _Failures()
        while (state := self._link.state()).phase is not LogPhase.GONE and failures.replaced < _GONE_AFTER:
            before = self._taken
            if self._attempt(state, failures):
                return
            self._link.is_current(not failures.cut and not failures.replaced)
            self._link.idle()
            failures.idle = 0 if self._taken > before else failures.idle + 1
            self._link.pause(failures.pause)
        if state.phase is not LogPhase.GONE:
            self._link.pause(_LONGEST_PAUSE)
        if self._link.state().phase is not LogPhase.GONE:
            self._note("its log cannot be read: the pod was removed, or you may not get pods")
        if failures.cut:
            self._note("its last lines may be missing: the pod was removed before they could be read")

    def snapshot(self) -> None:
        """Read what there is now; raises the last error after several failures in a row."""
        state = self._link.state()
        if not state.begun:
            self._note(f"has no log: {state.reason or 'its container never started'}")
            return
        self._insist(lambda: self._pass(state.phase))

    def previous(self) -> None:
        """Read the log of the container before the last restart."""
        try:
            self._insist(self._pass_previous)
        except (*_FATAL, ApiServerUnreachable):
            raise
        except ClusterError:
            self._note("has no previous log: its container has not restarted, or the node has removed the log")

    def _attempt(self, state: LogState, failures: _Failures) -> bool:
        """Make a pass; True if it was the last."""
        try:
            if state.phase is LogPhase.NOT_STARTED:
                self._tail = None  # it begins later, so that all its lines are wanted
            elif state.begun:
                self._pass(state.phase, follow=state.phase is LogPhase.OPEN)
            failures.replaced = failures.refused = 0
            failures.cut = False
        except Replaced:
            failures.replaced += 1
        except _FATAL:
            raise
        except ApiServerUnreachable:
            failures.replaced = failures.refused = 0
            failures.cut = True
        except ClusterError as error:
            return self._is_refused(state, failures, error)
        return state.phase is LogPhase.ENDED and not failures.cut and not failures.replaced

    def _is_refused(self, state: LogState, failures: _Failures, error: ClusterError) -> bool:
        """The node refuses: the container is about to start, or its log is gone."""
        failures.replaced = 0
        failures.refused += state.phase is LogPhase.ENDED
        if failures.refused >= _REFUSED_AFTER:
            self._note(f"its log cannot be read: {error.message}")
        return failures.refused >= _REFUSED_AFTER

    def _insist(self, action: Callable[[], None]) -> None:
        """Repeat what lost connections interrupt."""
        failures = _Failures()
        while True:
            before = self._taken
            try:
                return action()
            except Replaced:
                return self._note("was removed while its log was read")
            except ApiServerUnreachable:
                failures.idle = 0 if self._taken > before else failures.idle + 1
                if failures.idle >= _ATTEMPTS:
                    raise
            self._link.pause(failures.pause)

    def _pass(self, phase: LogPhase, *, follow: bool = False) -> None:
        self._read_tail()
        self._resume.begin()
        self._searches = 0
        if not follow:
            self._read_previous()
            is_known = self._resume.found
            self._read_to_end(grows=phase is LogPhase.OPEN)
            lost = not is_known and not self._resume.found and self._resume.at is not None
            if phase is LogPhase.ENDED and lost:
                self._read_previous()  # its stream may have ended too early
            if phase is LogPhase.ENDED and lost and not self._resume.found:
                self._note("its last lines may be missing: the node does not have them any more")
            return
        with self._open(follow=True) as lines:
            self._read_previous()
            self._link.is_current(True)
            self._drain(lines)

    def _pass_previous(self) -> None:
        self._read_tail(previous=True)
        self._resume.begin()
        self._read_to_end(previous=True)

    def _read_tail(self, *, previous: bool = False) -> None:
        """Read the last lines, or only find out which is the last; once."""
        if self._tail is None:
            return
        try:
            if not self._take_tail(previous) and self._resume.at is None:
                self._anchor(previous)
        finally:
            if self._resume.at is not None:
                self._tail = None
        self._tail = None

    def _take_tail(self, previous: bool) -> bool:
        """Read the lines before the end; False if the last line has no end."""
        stream, tail, whole = self._resume.stream(), self._tail or 0, True
        with self._open(previous=previous, tail=max(tail, 1)) as lines:
            for raw in lines:
                whole = is_whole(raw)
                line = self._parse(raw) if whole else None
                if line is not None and stream.takes(line) and tail:
                    self._emit(line)
        return whole

    def _anchor(self, previous: bool) -> None:
        """The last line has no end: continue after the line before it."""
        with self._open(previous=previous, tail=2) as lines:
            raw = next(lines, b"")
            line = self._parse(raw) if is_whole(raw) else None
            if line is not None:
                self._resume.stream().takes(line)

    def _read_previous(self) -> None:
        """Read the rest of the log of the container before the last restart, if there is such a log."""
        try:
            self._read_to_end(previous=True)
        except (*_FATAL, ApiServerUnreachable):
            raise
        except ClusterError:
            return  # there was no restart

    def _read_to_end(self, *, previous: bool = False, grows: bool = False) -> None:
        """Read until two readings agree; a log that grows is read once, if its last line is whole."""
        ending, readings, is_read = b"", 0, False
        while not is_read:
            before = self._taken
            if readings:
                self._resume.begin()
            with self._open(previous=previous) as lines:
                rest = self._drain(lines, previous=previous)
            readings += 1
            is_same = self._taken == before and rest == ending
            ending = rest
            if grows:
                is_read = not rest or readings > _REPEATS
            elif previous:
                is_read = is_same and (readings > 1 or self._is_absent())
            else:
                is_read = is_same and readings > 1 and (self._resume.found or readings > _REPEATS)
        line = parse(ending)
        if line is not None and not previous and self._resume.is_ahead(line):
            self._search(line, self._resume.stream(), previous=False)
        if line is not None and self._resume.stream().takes(line):
            self._emit(line)

    def _is_absent(self) -> bool:
        """True if the reading has not shown the last known line: the current log shows then if lines are missing."""
        return self._resume.at is not None and not self._resume.found

    def _drain(self, lines: Iterator[bytes], *, previous: bool = False) -> bytes:
        """Emit the new lines of a stream; returns its last line if that has no end."""
        stream, rest = self._resume.stream(), b""
        for raw in lines:
            if not is_whole(raw):
                rest = raw  # a broken connection raises next
                continue
            line = self._parse(raw)
            if line is None:
                continue
            if self._resume.is_ahead(line):
                stream = self._search(line, stream, previous=previous)
            if stream.takes(line):
                self._emit(line)
        return rest

    def _search(self, line: Line, stream: ResumedStream, *, previous: bool) -> ResumedStream:
        """The last known line is missing: read the previous log again, or report that lines may be missing."""
        while not previous and self._searches < _REPEATS and self._resume.is_ahead(line):
            self._searches += 1
            self._read_previous()
            stream = self._resume.stream()
        if self._resume.is_ahead(line):
            self._resume.accept_gap()
            stamp = line.stamp.decode(errors="replace")
            self._link.note(f"lines before {stamp} may be missing: the node does not have them any more")
        return stream

    @contextmanager
    def _open(
        self, *, follow: bool = False, previous: bool = False, tail: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        """Open a log of this very pod: the pod exists at this moment, and so it did when the node answered."""
        since = self._resume.since
        moment = None if since is None else to_moment(since)
        request = LogRequest(self._place.pod, self._place.container, follow, previous, moment, tail)
        with self._cluster.log(request) as lines:
            pod = self._cluster.read(self._place.path)
            if pod is None or pod["metadata"].get("uid") != self._place.uid:
                raise Replaced
            yield lines

    def _parse(self, raw: bytes) -> Line | None:
        line = parse(raw)
        if line is None and raw.strip():
            self._note(raw.decode(errors="replace").strip())
        return line

    def _note(self, text: str) -> None:
        """Report something once."""
        if text not in self._notes:
            self._notes.add(text)
            self._link.note(text)

    def _emit(self, line: Line) -> None:
        self._taken += 1
        self._link.emit(line)
