"""Watches a directory for renames by inotify(7), and wakes the reader at once.

Where the kernel, a limit of the node or the file system does not permit it, nothing is seen: then files must rest.
"""

import ctypes
import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pytorchjob_agent.contract.checkpoint_rules import FENCE_FOLDER
from pytorchjob_agent.saves import naming, renames
from pytorchjob_agent.saves.renames import Renamed, RenameEvent, Renames
from pytorchjob_agent.system.alarm import Alarm
from pytorchjob_agent.system.readable import wait_readable

_WATCHED = renames.CLOSED_AFTER_WRITING | renames.MOVED_FROM | renames.MOVED_TO | renames.CREATED
_FOLDERS_ONLY, _NO_LINKS = 0x01000000, 0x02000000
_HEAD = struct.Struct("iIII")
_BUFFER = 1 << 16
_MOST_FOLDERS = 2000


class RenameWatch:
    """Sees the renames in a directory and the folders below it."""

    def __init__(self, root: Path) -> None:
        """Begin with what is there."""
        self._root, self._renames = root, Renames()
        self._lock = threading.Lock()
        self._alarm = Alarm()
        self.wake = self._alarm.ring
        """Ends the wait, or the next one; any thread may."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = -1
        if hasattr(self._libc, "inotify_init1"):
            self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        with self._lock:
            self._read()

    def wait(self, seconds: float) -> None:
        """Return within these seconds: as soon as something was renamed into place, or `wake` was called."""
        end = time.monotonic() + seconds
        waited: list[Alarm | int] = [self._alarm, *([self._fd] if self._fd >= 0 else [])]
        while not self._renames.any() and (left := end - time.monotonic()) > 0:
            if self._alarm in wait_readable(waited, left):
                self._alarm.hush()
                return
            with self._lock:
                self._read()

    def take(self) -> Renamed:
        """Return what was renamed into place since the last call."""
        with self._lock:
            self._read()
            return self._renames.take()

    def written(self) -> frozenset[str]:
        """Return the files that were closed after writing since the last `take`, by a script or by a kill."""
        with self._lock:
            self._read()
            return self._renames.written()

    def close(self) -> None:
        """Watch no more; nothing may be waiting."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._alarm.close()

    def _read(self) -> None:
        if self._fd < 0:
            return
        while events := list(self._events()):
            for folder in self._renames.follow(events):
                self._watch(folder)
        if "" not in self._renames.watched():
            self._watch("")

    def _events(self) -> Iterator[RenameEvent]:
        try:
            data = os.read(self._fd, _BUFFER)
        except OSError:
            return
        while data:
            watch, bits, cookie, length = _HEAD.unpack_from(data)
            name, data = data[_HEAD.size : _HEAD.size + length], data[_HEAD.size + length :]
            yield RenameEvent(watch, bits, cookie, os.fsdecode(name.rstrip(b"\0")))

    def _watch(self, folder: str) -> None:
        """Watch a folder and those below it; a folder that is gone is left out, and each above the limit."""
        path = self._root / folder
        if path.name in (naming.OWN_FOLDER, FENCE_FOLDER) or len(self._renames.watched()) >= _MOST_FOLDERS:
            return
        bits = _WATCHED | _FOLDERS_ONLY | _NO_LINKS
        watch = self._libc.inotify_add_watch(self._fd, os.fsencode(path), bits)
        if watch < 0:
            return
        self._renames.add(watch, folder)
        try:
            below = [entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return
        for name in below:
            self._watch(f"{folder}/{name}" if folder else name)
