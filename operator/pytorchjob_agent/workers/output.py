"""Reads the workers' output from pipes, prints whole lines with the rank before each, and keeps the end for reports.

It uses named pipes instead of torch's files, which would fill the disk of a pod that trains for weeks.
"""

import contextlib
import os
import selectors
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pytorchjob_agent.system.alarm import Alarm

_TAIL = 64 * 1024
_LONGEST_LINE = 64 * 1024
REDRAWN_SECONDS = 10.0
"""Seconds between two prints of a line that its worker redraws, as tqdm does; its final state is always printed."""


def rank_prefix(rank: object) -> str:
    """Return the prefix of a worker's lines in the log. torch puts the same before the lines of an uncaught error."""
    return f"[rank{rank}]: "


@dataclass(slots=True)
class WorkerStream:
    """One stream of one worker."""

    prefix: bytes
    """Of the rank: before each line that the agent prints about the worker."""
    out: BinaryIO
    fd: int
    own_end: int  # the agent's writing end; without it an idle pipe reports its end all the time
    line: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    marks: bool = True  # the worker's own lines have the prefix too
    listener: Callable[[bytes], None] | None = None  # receives each line, and each state of a redrawn line
    _state: bytes = b""  # the line's state before it was redrawn
    _printed: bytes = b""  # its state when it was printed
    _printed_at: float = float("-inf")

    def feed(self, data: bytes, now: float) -> None:
        """Take what the worker wrote at `now` (monotonic seconds) and print the lines that are complete."""
        self.tail += data
        del self.tail[:-_TAIL]
        self.line += data
        whole, end, rest = self.line.rpartition(b"\n")
        if end:
            self._print(bytes(whole))
            self.line = rest
        if b"\r" in self.line:
            self._redraw(now)
        if len(self.line) > _LONGEST_LINE:
            self._print(bytes(self.line))
            self.line = bytearray()

    def finish(self) -> None:
        """Print the last line, which may lack its end, and close the pipe."""
        if self.line or self._state:
            self._print(bytes(self.line))
        os.close(self.fd)
        os.close(self.own_end)

    def _print(self, text: bytes) -> None:
        lines = text.split(b"\n")
        if b"\r" in text or self._state or self._printed:
            shown = [self._complete(line) for line in lines]
            self._write([line for line in shown if line is not None])
        else:  # nothing is redrawn, as in nearly all output
            self._write(lines)
            self._notify(lines)

    def _complete(self, line: bytes) -> bytes | None:
        """Return a line's final state on a terminal; None if exactly that has been printed."""
        states = _states(line)
        self._notify(states or ([] if self._state else [b""]))
        last = states[-1] if states else self._state
        known, self._state, self._printed = self._printed, b"", b""
        return None if last and last == known else last

    def _redraw(self, now: float) -> None:
        """Keep the newest state of a redrawn line; print it if the last print is old enough."""
        before, _, rest = self.line.rpartition(b"\r")
        states = _states(bytes(before))
        self._notify(states)
        self._state, self.line = (states or [self._state])[-1], rest
        newest = bytes(rest) if rest.strip() else self._state
        if newest and now - self._printed_at >= REDRAWN_SECONDS:
            self._printed, self._printed_at = newest, now
            self._write([newest])

    def _notify(self, lines: list[bytes]) -> None:
        if self.listener is not None:
            for line in lines:
                self.listener(line)

    def write_lines(self, text: str) -> None:
        """Print lines about the worker among its own; any thread may call it."""
        self._put(text.encode(errors="replace").splitlines(), self.prefix)

    def _write(self, lines: list[bytes]) -> None:
        self._put(lines, self.prefix if self.marks else b"")

    def _put(self, lines: list[bytes], own: bytes) -> None:
        text = b"".join((b"" if own and line.startswith(own) else own) + line + b"\n" for line in lines)
        with contextlib.suppress(OSError):  # the log has no reader any more, but the workers must continue
            self.out.write(text)
            self.out.flush()


def _states(line: bytes) -> list[bytes]:
    """Return a line's states between its carriage returns; blanks, which only erase it, do not count."""
    return [state for state in line.split(b"\r") if state.strip()]


class Pump:
    """Reads all streams of one round of workers in one thread."""

    def __init__(self, directory: Path) -> None:
        """Prepare to make the pipes in `directory`."""
        self._directory = directory
        self._streams: list[WorkerStream] = []
        self._selector = selectors.DefaultSelector()
        self._end = Alarm()
        self._selector.register(self._end, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)

    def attach(self, name: str, prefix: str, out: BinaryIO, *, marks: bool = True) -> tuple[str, WorkerStream]:
        """Make a pipe whose lines go to `out`; returns its path and the stream. See WorkerStream."""
        path = self._directory / name
        os.mkfifo(path, 0o600)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        own_end = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        stream = WorkerStream(prefix.encode(), out, fd, own_end, marks=marks)
        self._streams.append(stream)
        self._selector.register(fd, selectors.EVENT_READ, stream)
        return str(path), stream

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Print what the pipes still hold, and stop; the workers must have ended."""
        self._end.ring()
        self._thread.join()
        self._selector.close()
        self._end.close()

    def _run(self) -> None:
        while all(key.data is not None for key, _ in self._read_ready(None)):
            pass
        while any(key.data is not None for key, _ in self._read_ready(0)):
            pass
        for stream in self._streams:
            stream.finish()

    def _read_ready(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._selector.select(timeout)
        for key, _ in ready:
            if key.data is not None:
                self._read(key.data)
        return ready

    @staticmethod
    def _read(stream: WorkerStream) -> None:
        with contextlib.suppress(BlockingIOError):
            stream.feed(os.read(stream.fd, 65536), time.monotonic())
