"""Records in a worker which collectives it has begun, in a file that the agent reads when no rank goes on.

torch has a recorder of its own, which has to be asked: a worker that holds the GIL in C, or that is stopped, gives no
answer. What is in a mapped file can be read of any worker, also of one that has ended.

The module imports nothing else of the agent, because the worker's Python may not find the package.
"""

import mmap
import os
import struct
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

RECORDER = "PYTORCHJOB_COLLECTIVES"  # the file to write to
MOST_GROUPS, LAST = 32, 256
"""Process groups, and the last collectives of all of them together, that are kept."""
_HEAD = struct.Struct("<qqq")  # pid, optimizer steps, collectives of all groups
_COUNTS = struct.Struct("<qqq")  # collectives begun, the place of the last one among those of all groups, when
_NAME = struct.Struct("72s")  # of the group, behind its counts
_GROUP_SIZE = _COUNTS.size + _NAME.size
_CALL = struct.Struct("<qqq72s")  # its place, group, number within the group, what was called
_GROUPS_AT = 64
_CALLS_AT = _GROUPS_AT + MOST_GROUPS * _GROUP_SIZE
SIZE = _CALLS_AT + LAST * _CALL.size
HEAD = _HEAD.size
"""Bytes at the beginning that `moves` needs."""
_LONGEST = 64
_NAMES = {
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "all_reduce_coalesced",
    "ALLGATHER": "all_gather",
    "ALLGATHER_BASE": "all_gather_into_tensor",
    "ALLGATHER_COALESCED": "all_gather_coalesced",
    "ALLGATHER_INTO_TENSOR_COALESCED": "all_gather_into_tensor_coalesced",
    "REDUCE_SCATTER_BASE": "reduce_scatter_tensor",
    "REDUCE_SCATTER_TENSOR_COALESCED": "reduce_scatter_tensor_coalesced",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all_single",
}
_EQUAL = frozenset(
    {
        "ALLREDUCE",
        "ALLREDUCE_COALESCED",
        "ALLGATHER_BASE",
        "BROADCAST",
        "REDUCE",
        "REDUCE_SCATTER",
        "REDUCE_SCATTER_BASE",
    }
)
"""All ranks have to call these with tensors of one type and size."""
_ROOTS = frozenset({"BROADCAST", "REDUCE", "GATHER", "SCATTER"})
_POINT_TO_POINT = frozenset({"SEND", "RECV"})
"""Two ranks of a group do these, so they are no place in the group's order."""


class CollectiveRecorder:
    """The worker's side of the file."""

    def __init__(self, path: str) -> None:
        """Map the file, which has `SIZE` bytes. The first process that does so owns it. Raises OSError, ValueError."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._bytes = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)
        pid = _HEAD.unpack_from(self._bytes)[0]
        self.ours = pid in (0, os.getpid())
        self._steps = self._total = 0
        self._names: list[str] = []
        self._begun: list[int] = []
        if self.ours:
            self._write_head()

    def add(self, name: str) -> int | None:
        """Return the number of a new process group with this name; None if there are too many."""
        if len(self._names) == MOST_GROUPS:
            return None
        again = self._names.count(name)  # a group that was destroyed may have had this name
        self._names.append(name)
        self._begun.append(0)
        group = len(self._names) - 1
        text = f"{name} #{again + 1}" if again else name
        _NAME.pack_into(self._bytes, _at(group) + _COUNTS.size, text.encode("ascii", "replace")[:_LONGEST])
        self._write_counts(group, 0)
        return group

    def step(self) -> None:
        """Count a step of an optimizer."""
        self._steps += 1
        self._write_head()

    def begin(self, group: int, args: Any) -> None:
        """Record a collective that begins; `args` is what torch gives to a hook."""
        name = args.name.name
        if name in _POINT_TO_POINT:
            return
        self._total += 1
        self._begun[group] += 1
        place, number = self._total, self._begun[group]
        at = _CALLS_AT + place % LAST * _CALL.size
        _CALL.pack_into(self._bytes, at, place, group, number, call(name, args).encode("ascii", "replace"))
        self._write_counts(group, place)
        self._write_head()

    def _write_counts(self, group: int, place: int) -> None:
        _COUNTS.pack_into(self._bytes, _at(group), self._begun[group], place, time.monotonic_ns())

    def _write_head(self) -> None:
        _HEAD.pack_into(self._bytes, 0, os.getpid(), self._steps, self._total)


def call(name: str, args: Any) -> str:
    """Return what all ranks of a group have to call equally, as text: the collective, and often its tensors."""
    words = [_NAMES.get(name, name.lower())]
    if name in _ROOTS:
        words.append(f"root={args.root}")
    tensors = args.input_tensors if name in _EQUAL else ()
    words += [f"{str(tensor.dtype)[6:]}{[*tensor.shape]}".replace(" ", "") for tensor in tensors[:2]]
    if len(tensors) > 2:
        words.append(f"and {len(tensors) - 2} more")
    return " ".join(words)[:_LONGEST]


class RecordedGroup(NamedTuple):
    """A process group as the file shows it."""

    name: str
    begun: int
    place: int
    """Of its last collective among those of all groups, from 1 on; 0: it has begun none."""
    at: int
    """When that began, in nanoseconds of the monotonic clock."""
    calls: Sequence[str]
    """The last collectives, the newest last."""


def moves(data: bytes) -> tuple[int, int]:
    """Return the optimizer steps and the collectives that a worker has begun."""
    return _HEAD.unpack_from(data)[1:3] if len(data) >= HEAD else (0, 0)


def read(data: bytes) -> list[RecordedGroup]:
    """Return the process groups of a worker. It may write meanwhile: then its last collectives may be missing."""
    if len(data) != SIZE:
        return []
    calls: dict[int, dict[int, str]] = {}
    for index in range(LAST):
        place, group, number, text = _CALL.unpack_from(data, _CALLS_AT + index * _CALL.size)
        if place:
            calls.setdefault(group, {})[number] = _text(text)
    found = []
    for group in range(MOST_GROUPS):
        begun, place, at = _COUNTS.unpack_from(data, _at(group))
        [name] = _NAME.unpack_from(data, _at(group) + _COUNTS.size)
        if at:
            known = calls.get(group, {})
            found.append(RecordedGroup(_text(name), begun, place, at, _last(known, begun)))
    return found


def _at(group: int) -> int:
    return _GROUPS_AT + group * _GROUP_SIZE


def _last(calls: dict[int, str], begun: int) -> Sequence[str]:
    """Return the calls up to this number, as far back as none is missing."""
    found: list[str] = []
    while (number := begun - len(found)) in calls:
        found.append(calls[number])
    return found[::-1]


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode("ascii", "replace")
