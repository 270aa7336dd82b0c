"""What the scripts of one round's workers show of their progress without `progress()`: the sources, and their order.

What a library posts counts more than what a worker prints.
"""

import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pytorchjob_agent.observers.progress_lines import LONGEST_LINE, MAY_SHOW, LineReader
from pytorchjob_agent.observers.status_server import StatusServer
from pytorchjob_agent.script.observation import Observation, furthest, with_pace

_KEPT = 32
"""Lines of a worker that are read later, at most once a second: its output waits for no expression."""

_LONGEST = 4 * LONGEST_LINE
"""Bytes of a line: a character has at most four."""


class ObservedProgress:
    """The observed progress of one round's workers."""

    def __init__(self, directory: Path, nproc: int) -> None:
        """Start the server of the round; without a loopback address only the output is read."""
        self._lines: list[deque[bytes]] = [deque(maxlen=_KEPT) for _ in range(nproc)]
        self._readers = [LineReader() for _ in range(nproc)]
        self._posted: dict[int, Observation] = {}
        self._first: tuple[Observation, float] | None = None
        self._reading = threading.Lock()
        self._server: StatusServer | None = None
        with suppress(OSError):
            self._server = StatusServer(directory, self._accept)

    def env(self, local_rank: int, own: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that this worker needs beside those of the pod, `own`."""
        return {} if self._server is None else self._server.env(local_rank, own)

    def add_line(self, local_rank: int, line: bytes) -> None:
        """Keep a line that may show progress; the thread that reads the output calls it."""
        beginning = line[:_LONGEST]
        if MAY_SHOW.search(beginning):
            self._lines[local_rank].append(beginning)

    def read(self, now: float) -> Observation | None:
        """Return the furthest worker's progress with its speed; `now` is the value of time.monotonic()."""
        with self._reading:
            found = furthest(self._posted.copy().values()) or furthest(self._printed())
            return None if found is None else self._paced(found, now)

    def ended(self) -> None:
        """Note that all workers have ended with success."""
        with self._reading:
            self._printed()
            for reader in self._readers:
                reader.ended()

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accept(self, local_rank: int, new: Observation) -> None:
        """Take a report; the last one of Hugging Face's Trainer has no step, so the step before it stays."""
        if local_rank >= len(self._readers):
            return
        before = self._posted.get(local_rank, Observation())
        step = before.step if new.step is None else new.step
        total = before.total if new.total is None else new.total
        self._posted[local_rank] = Observation(step, total, new.percent, new.remaining, new.metrics)

    def _printed(self) -> list[Observation]:
        for lines, reader in zip(self._lines, self._readers, strict=True):
            for _ in range(len(lines)):  # not for ever: the worker goes on printing
                reader.take(lines.popleft().decode(errors="replace"))
        return [reader.found for reader in self._readers]

    def _paced(self, found: Observation, now: float) -> Observation:
        """Add the speed since the first position of this round; a position that goes back starts it again."""
        first = None if self._first is None else self._first[0]
        later = first is not None and found.position >= first.position
        if not later or (first is not None and first.step is None and found.step is not None):
            self._first = (found, now)
        assert self._first is not None
        first, since = self._first
        return with_pace(found, first, now - since)
