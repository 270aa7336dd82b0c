"""The progress file: one small file that a worker and its agent both map, to exchange values without a system call.

Pure: it reads and writes memory that it is given. Every field is one aligned word of 8 bytes with one writer, so no
reader sees half a value; texts carry a checksum. Times are CLOCK_MONOTONIC, which both sides of one machine share.
The script's side is `api`, the agent's side is `agent_side`.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite

PROGRESS = "PYTORCHJOB_PROGRESS"  # the file's path
SIZE = 4096
MOST_METRICS = 16
LONGEST_NAME = 64  # as JSON, in bytes

_MAGIC = int.from_bytes(b"ptjboard", "little", signed=True)
_VERSION = 1
_HEAD, _LAYOUT = 0, 1
# The worker writes the first line of words. The agent writes the second one, which has cache lines of its own.
_USES, _STEP, _TOTAL, _TIME, _ANSWERED, _NAMES, _LEFT, _VALUES = 8, 9, 10, 11, 12, 13, 14, 16
_CHECKPOINT, _STOP, _DEADLINE = 32, 33, 34
_FIRST_STEP, _FIRST_TIME = 40, 41  # the worker's again
STEP_AT, SAVES_AT = _STEP * 8, 48 * 8
"""Bytes from the start to the step, and to the words of `workers/startup/pytorchjob_saves`."""
_TEXT = 512  # the byte where the names of the metrics begin
_LONGEST_TEXT = 2048
_NONE = -1
_REPORTS, _ASKS_CHECKPOINT, _ASKS_STOP = 1, 2, 4


class RequestKind(StrEnum):
    """What an agent requests from its workers."""

    CHECKPOINT = "checkpoint"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """What a worker has written; `time` is that of its last report, in seconds."""

    step: int | None = None
    total: int | None = None
    time: float | None = None
    first_step: int | None = None  # of the reports whose steps only grew since
    first_time: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    answered: int = 0  # the newest request for which it has saved
    left: int = 0  # the request for which its script has ended
    reports: bool = False
    asks_checkpoint: bool = False
    asks_stop: bool = False


class ProgressFile:
    """The fields of one progress file, over writable memory of SIZE bytes."""

    def __init__(self, memory: memoryview) -> None:
        """Take memory that holds zeros or a progress file."""
        self._bytes = memory
        self._ints = memory.cast("q")
        self._floats = memory.cast("d")
        self._encoded: dict[tuple[str, ...], bytes] = {}
        self._written: tuple[str, ...] | None = None
        self._read: tuple[int, tuple[str, ...]] = (0, ())

    def format(self) -> None:
        """Write an empty progress file."""
        self._ints[_STEP] = self._ints[_TOTAL] = _NONE
        self._ints[_LAYOUT] = _VERSION
        self._ints[_HEAD] = _MAGIC

    @property
    def valid(self) -> bool:
        """Return whether the memory has the layout that this version knows."""
        return self._ints[_HEAD] == _MAGIC and self._ints[_LAYOUT] == _VERSION

    def release(self) -> None:
        """Release the memory, so that it can be unmapped."""
        for view in (self._ints, self._floats, self._bytes):
            view.release()

    # The worker's side.

    def report(self, step: int, total: int | None, now: float, metrics: Mapping[str, object]) -> None:
        """Write the worker's progress."""
        ints = self._ints
        names = tuple(metrics)
        if names != self._written:
            self._write_names(names, metrics)
        elif metrics:
            self._write_values(metrics)
        ints[_TOTAL] = _NONE if total is None else total
        if step < ints[_STEP] or not ints[_FIRST_TIME]:
            ints[_FIRST_STEP], self._floats[_FIRST_TIME] = step, now
        ints[_STEP] = step
        self._floats[_TIME] = now
        ints[_USES] |= _REPORTS

    def _write_values(self, metrics: Mapping[str, object]) -> None:
        # All are checked before the first is written.
        values = [value if type(value) is float else number(name, value) for name, value in metrics.items()]
        for at, value in enumerate(values, _VALUES):
            self._floats[at] = value

    def _write_names(self, names: tuple[str, ...], metrics: Mapping[str, object]) -> None:
        text = self._encoded.get(names)
        if text is None:
            text = _encode(names)
            self._encoded = {names: text} if len(self._encoded) >= MOST_METRICS else self._encoded | {names: text}
        self._ints[_NAMES] = 0  # no reader may combine the new values with the old names
        self._written = None
        self._write_values(metrics)
        self._bytes[_TEXT : _TEXT + len(text)] = text
        self._ints[_NAMES] = len(text) << 32 | zlib.crc32(text)
        self._written = names

    def asks(self, kind: RequestKind) -> None:
        """Record that the script checks for such requests, so that the agent waits for its answer."""
        self._ints[_USES] |= _ASKS_CHECKPOINT if kind is RequestKind.CHECKPOINT else _ASKS_STOP

    def answer(self, request: int) -> None:
        """Record that the worker has saved for this request."""
        self._ints[_ANSWERED] = request

    def leave(self, request: int) -> None:
        """Record that the script has ended for this request and reports nothing more."""
        self._ints[_LEFT] = request

    def wanted(self, kind: RequestKind) -> int:
        """Return the number of the newest request of this kind; 0: none yet."""
        return self._ints[_CHECKPOINT if kind is RequestKind.CHECKPOINT else _STOP]

    @property
    def deadline(self) -> float | None:
        """Return until when the agent waits for the answer to its newest request; None: without a limit."""
        return self._floats[_DEADLINE] or None

    # The agent's side.

    def request(self, kind: RequestKind, request: int, deadline: float | None) -> None:
        """Request a checkpoint, or a checkpoint and the end; a number older than the last one changes nothing."""
        self._floats[_DEADLINE] = deadline or 0.0
        if kind is RequestKind.STOP:
            self._ints[_STOP] = max(request, self._ints[_STOP])
        self._ints[_CHECKPOINT] = max(request, self._ints[_CHECKPOINT])

    def read(self) -> ProgressRecord:
        """Return what the worker has written; an empty record if it wrote nothing or damaged its file."""
        uses = self._ints[_USES]
        if not uses or not self.valid:
            return ProgressRecord()
        step, total, time = self._ints[_STEP], self._ints[_TOTAL], self._floats[_TIME]
        first_time = self._floats[_FIRST_TIME] or None
        return ProgressRecord(
            step=step if step >= 0 else None,
            total=total if total >= 0 else None,
            time=time or None,
            first_step=None if first_time is None else self._ints[_FIRST_STEP],
            first_time=first_time,
            metrics=self._metrics(),
            answered=self._ints[_ANSWERED],
            left=self._ints[_LEFT],
            reports=bool(uses & _REPORTS),
            asks_checkpoint=bool(uses & _ASKS_CHECKPOINT),
            asks_stop=bool(uses & _ASKS_STOP),
        )

    def bytes_at(self, at: int, size: int) -> bytes:
        """Return a part of the file; empty if the worker damaged its file."""
        return bytes(self._bytes[at : at + size]) if self.valid else b""

    def _metrics(self) -> dict[str, float]:
        """Return the metrics that JSON can hold; none during the moment in which the worker changes their names."""
        head = self._ints[_NAMES]
        names = self._names(head)
        values = self._floats[_VALUES : _VALUES + len(names)].tolist()
        if self._ints[_NAMES] != head:
            return {}
        return {name: value for name, value in zip(names, values, strict=True) if isfinite(value)}

    def _names(self, head: int) -> tuple[str, ...]:
        if head == self._read[0]:
            return self._read[1]
        length, checksum = head >> 32, head & 0xFFFFFFFF
        text = bytes(self._bytes[_TEXT : _TEXT + max(0, min(length, _LONGEST_TEXT))])
        if zlib.crc32(text) != checksum:
            return ()
        self._read = (head, _decode(text))
        return self._read[1]


def number(name: str, value: object) -> float:
    """Return a metric's value; raises an error that names the metric. A tensor is refused: reading it may block."""
    if isinstance(value, bool) or not (isinstance(value, int | float) or _is_numpy_number(value)):
        what = type(value).__name__
        raise TypeError(f"metric {name!r}: {what} is not a number: expected an int or a float, of a tensor its .item()")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise ValueError(f"metric {name!r}: the number is too large: expected one that a float can hold") from None


def _is_numpy_number(value: object) -> bool:
    """Return whether it is a number of numpy's, without importing numpy."""
    kind = type(value)
    return kind.__module__ == "numpy" and any(base.__name__ in ("floating", "integer") for base in kind.__mro__)


def _encode(names: tuple[str, ...]) -> bytes:
    if len(names) > MOST_METRICS:
        raise ValueError(f"{len(names)} metrics, the last is {names[-1]!r}: expected at most {MOST_METRICS}")
    for name in names:
        if not name or len(json.dumps(name)) > LONGEST_NAME:
            raise ValueError(f"metric {name[:80]!r}: expected a name of 1 to {LONGEST_NAME - 2} letters (ASCII)")
    return json.dumps(names, separators=(",", ":")).encode()


def _decode(text: bytes) -> tuple[str, ...]:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    fine = isinstance(names, list) and len(names) <= MOST_METRICS and all(isinstance(name, str) for name in names)
    return tuple(names) if fine else ()
