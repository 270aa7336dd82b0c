"""The workers' output: read from pipes, printed in whole lines with the rank before each, its end kept for the report.

Named pipes instead of torch's files: a pod that trains for weeks would fill its disk with the latter.
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
"""A line that its worker draws again and again, as tqdm does, is printed so often, and once it is complete."""


@dataclass(slots=True)
class Stream:
    """One stream of one worker."""

    prefix: bytes
    out: BinaryIO
    fd: int
    keeper: int  # our own writing end: without it an idle pipe reports its end for ever
    line: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    heard: Callable[[bytes], None] | None = None  # is given each line, and each state of one that is redrawn
    _state: bytes = b""  # how the line looked before it was drawn anew
    _printed: bytes = b""  # how it looked when it was printed
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
        os.close(self.keeper)

    def _print(self, text: bytes) -> None:
        lines = text.split(b"\n")
        if b"\r" in text or self._state or self._printed:
            shown = [self._complete(line) for line in lines]
            self._write([line for line in shown if line is not None])
        else:  # nothing is drawn anew: nearly all output
            self._write(lines)
            self._hear(lines)

    def _complete(self, line: bytes) -> bytes | None:
        """Return what a terminal shows of a line at its end; None when just that has been printed."""
        states = _states(line)
        self._hear(states or ([] if self._state else [b""]))
        last = states[-1] if states else self._state
        known, self._state, self._printed = self._printed, b"", b""
        return None if last and last == known else last

    def _redraw(self, now: float) -> None:
        """Keep the newest state of a line that has been drawn anew; print it if it is time to."""
        before, _, rest = self.line.rpartition(b"\r")
        states = _states(bytes(before))
        self._hear(states)
        self._state, self.line = (states or [self._state])[-1], rest
        newest = bytes(rest) if rest.strip() else self._state
        if newest and now - self._printed_at >= REDRAWN_SECONDS:
            self._printed, self._printed_at = newest, now
            self._write([newest])

    def _hear(self, lines: list[bytes]) -> None:
        if self.heard is not None:
            for line in lines:
                self.heard(line)

    def say(self, text: str) -> None:
        """Print lines as if the worker had, from any thread."""
        self._write(text.encode(errors="replace").splitlines())

    def _write(self, lines: list[bytes]) -> None:
        text = b"".join(self.prefix + line + b"\n" for line in lines)
        with contextlib.suppress(OSError):  # nobody reads any more: the workers must go on all the same
            self.out.write(text)
            self.out.flush()


def _states(line: bytes) -> list[bytes]:
    """Return what a line looked like, from one carriage return to the next; the blanks that wipe it away are none."""
    return [state for state in line.split(b"\r") if state.strip()]


class Pump:
    """Reads all streams of one round of workers in one thread."""

    def __init__(self, directory: Path) -> None:
        """Prepare to make the pipes in `directory`."""
        self._directory = directory
        self._streams: list[Stream] = []
        self._selector = selectors.DefaultSelector()
        self._end = Alarm()
        self._selector.register(self._end, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)

    def attach(self, name: str, prefix: str, out: BinaryIO) -> tuple[str, Stream]:
        """Make a pipe whose lines go to `out`; returns its path and the stream."""
        path = self._directory / name
        os.mkfifo(path, 0o600)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        stream = Stream(prefix.encode(), out, fd, os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        self._streams.append(stream)
        self._selector.register(fd, selectors.EVENT_READ, stream)
        return str(path), stream

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Print what the pipes still hold and end; the workers have to be gone."""
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
    def _read(stream: Stream) -> None:
        with contextlib.suppress(BlockingIOError):
            stream.feed(os.read(stream.fd, 65536), time.monotonic())
