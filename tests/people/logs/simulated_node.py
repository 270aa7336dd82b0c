"""A node and the API server before it, as far as the log of one container shows them, without threads or time.

It gives logs as a kubelet does: `since` in whole seconds, only the current and the previous container, only what the
last rotation has left, and a last line without its end if the container printed it so. The API server cuts streams
after any byte. Sometimes it reports that; if it has lost the node, it ends the stream in good order. What the
container does happens whenever time passes: while a stream waits for more, between requests, while the reader pauses.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from pytorchjob.cluster.api import LogRequest
from pytorchjob.cluster.errors import ApiServerUnreachable, Rejected
from pytorchjob.logs.containers import LogPhase, LogState
from pytorchjob.logs.lines import NANOSECONDS, Line, from_moment

START = from_moment(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
_CALM_REQUESTS = 4
"""Requests after a silent cut without another: the node is not lost twice within one reading."""


@dataclass
class Log:
    """The part of one container's log that the node still has."""

    lines: list[tuple[int, bytes]] = field(default_factory=list)
    is_closed: bool = False
    dropped: int = 0
    """Lines that a rotation has removed."""

    def text(self, position: int, since: int) -> bytes:
        at, text = self.lines[position]
        second, rest = divmod(at, NANOSECONDS)
        stamp = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z "
        return stamp.encode() + text if at >= since else b""


class SimulatedNode:
    """One container that prints, restarts and ends; `Cluster.log`, `Cluster.read`, and the reader's link."""

    def __init__(self, seed: int, actions: list[str], *, harmless: bool = True, distinct: bool = False) -> None:
        """Perform these actions. `harmless`: the node keeps every line until the reader has taken it."""
        self.namespace = "team"
        self.printed: list[bytes] = []
        self.emitted: list[bytes] = []
        self.notes: list[str] = []
        self._chance, self._actions, self._harmless = Random(seed), list(actions), harmless
        self._steps = [1, 1000, NANOSECONDS // 3, NANOSECONDS] + ([] if distinct else [0, 0])
        self._now = START
        self._log, self._previous = Log(), None
        self._older = 0  # lines of logs before the previous one
        self._restarts = 0
        self._cuts = 40
        self._calm = 0

    # What the container does.

    def _happen(self) -> None:
        if self._actions:
            getattr(self, f"_{self._actions.pop(0)}")()
        elif not self._log.is_closed:
            self._end()

    def _print(self) -> None:
        for _ in range(self._chance.randint(1, 4)):
            self._now += self._chance.choice(self._steps)
            text = self._chance.choice([b"same\n", b"\n", b"line %d\n" % len(self.printed), "größer 0\n".encode()])
            self._append(text)

    def _append(self, text: bytes) -> None:
        self._log.lines.append((self._now, text))
        self.printed.append(text.removesuffix(b"\n"))

    def _end(self) -> None:
        if self._chance.random() < 0.5:
            self._now += 1
            self._append(b"an unfinished line %d" % len(self.printed))
        self._now += self._chance.choice([1, NANOSECONDS])
        self._log.is_closed = True

    def _restart(self) -> None:
        kept = len(self._previous.lines) if self._previous else 0
        if self._harmless and len(self.emitted) < self._older + kept:
            return  # the node would forget lines
        self._end()
        self._older += kept
        self._previous, self._log = self._log, Log()
        self._restarts += 1

    def _rotate(self) -> None:
        if self._harmless and len(self.emitted) < len(self.printed):
            return
        self._now += 1
        self._log.dropped = len(self._log.lines)

    # What the reader sees: the cluster.

    def read(self, path: str) -> dict[str, Any] | None:
        self._maybe_happen()
        if self._chance.random() < 0.05 and self._is_broken():
            raise ApiServerUnreachable("no answer")
        return {"metadata": {"uid": "uid-1"}}

    @contextmanager
    def log(self, request: LogRequest) -> Iterator[Iterator[bytes]]:
        self._maybe_happen()
        if self._chance.random() < 0.1 and self._is_broken():
            raise ApiServerUnreachable("no answer")
        log = self._previous if request.previous else self._log
        if log is None:
            raise Rejected("previous terminated container not found")
        yield self._cut(self._stream(log, request))

    def _stream(self, log: Log, request: LogRequest) -> Iterator[bytes]:
        since = from_moment(request.since) if request.since else 0
        assert request.since is None or request.since.microsecond == 0
        position = log.dropped if request.tail is None else max(log.dropped, len(log.lines) - request.tail)
        end = len(log.lines)
        while position < end or (request.follow and self._grows(log, position)):
            if text := log.text(position, since):
                yield text
            position += 1
            end = len(log.lines) if request.follow else end

    def _grows(self, log: Log, position: int) -> bool:
        while len(log.lines) <= position and not log.is_closed:
            self._happen()
        return len(log.lines) > position

    def _cut(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        is_cut = self._is_broken()
        left = self._chance.randint(0, 300) if is_cut else 1 << 30
        silent = is_cut and not self._calm and self._chance.random() < 0.5
        self._calm = _CALM_REQUESTS if silent else max(0, self._calm - 1)
        for line in lines:
            if len(line) > left:
                if left:
                    yield line[:left]
                if silent:
                    return
                raise ApiServerUnreachable("connection lost")
            left -= len(line)
            yield line

    def _is_broken(self) -> bool:
        self._cuts -= 1
        return self._cuts > 0 and self._chance.random() < 0.5

    def _maybe_happen(self) -> None:
        if self._chance.random() < 0.3:
            self._happen()

    # What the reader sees: its link.

    def state(self) -> LogState:
        phase = LogPhase.ENDED if self._log.is_closed else LogPhase.OPEN
        return LogState(phase, self._restarts, START, begun=True)

    def emit(self, line: Line) -> None:
        self.emitted.append(line.text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def is_current(self, current: bool) -> None:
        pass

    def idle(self) -> None:
        pass

    def pause(self, seconds: float) -> None:
        for _ in range(self._chance.randint(0, 2)):
            self._happen()
