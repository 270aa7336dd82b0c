"""The folder of one pod's caches: what is in it, what may be offered, what a kill has cut."""

import fcntl
import os
import shutil
import stat
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from pytorchjob_agent.caches import listing
from pytorchjob_agent.caches.listing import CachedFile, unit_of
from pytorchjob_agent.caches.settings import FOLDERS, HEADERS, INDUCTOR
from pytorchjob_agent.exchange.files import make_parent, open_file

REST_NS = 2 * 10**9
"""A file is offered once it has not changed for this time."""
_INCOMING = ".incoming"
_LOCK = ".lock"
_MOST_SEEN = 100_000
_BUILDS = "_CxxBuild"
"""torch's folder beside a library while it builds it; a build that is cut leaves it behind."""
_SOURCES = (".cpp", ".h", ".py")
_ELF, _ELF64, _LITTLE_ENDIAN = b"\x7fELF", 2, 1
_HEADER = struct.Struct("<16s24xQ10xHH2x")
"""The parts of a library's head that locate its table of sections: the place, the size and number of entries."""


class CacheFolder:
    """The caches of one key."""

    def __init__(self, root: Path) -> None:
        """Make the folders. Raises OSError."""
        self.root = root
        for name in FOLDERS:
            (root / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock: int | None = None

    def fill(self) -> int:
        """Return how full the caches are, by the number of entries in their folders; 0: empty. It takes no time."""
        return sum(len(os.listdir(self.root / name)) for name in FOLDERS)

    def offer(self, now_ns: int, writing: Collection[tuple[int, int]] = ()) -> list[CachedFile]:
        """Return the files that are complete, within the limits. `writing`: device and inode of files that are open."""
        found: list[CachedFile] = []
        torn: set[str] = set()
        for path, info in self._walk():
            unit, file = unit_of(path), self._read(path, info)
            whole = now_ns - info.st_mtime_ns >= REST_NS and (info.st_dev, info.st_ino) not in writing
            if file is not None and whole and not self._is_cut(path):
                found.append(file)
            else:
                torn.add(unit)
        return listing.choose(file for file in found if not unit_of(file.path) or unit_of(file.path) not in torn)

    def _read(self, path: str, info: os.stat_result) -> CachedFile | None:
        if not listing.is_cached(path):
            return None
        if stat.S_ISREG(info.st_mode):
            return CachedFile(path, info.st_size, info.st_mtime_ns)
        with suppress(OSError):
            link = os.readlink(self.root / path)
            return CachedFile(path, 0, info.st_mtime_ns, link) if listing.may_link(path, link) else None
        return None

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the files and links below the caches, with their state; no more than a bound."""
        count = 0
        for name in FOLDERS:
            for folder, _, names in os.walk(self.root / name):
                for entry in names:
                    count += 1
                    if count > _MOST_SEEN:
                        return
                    with suppress(OSError):
                        found = os.lstat(os.path.join(folder, entry))
                        yield os.path.relpath(os.path.join(folder, entry), self.root), found

    def _is_cut(self, path: str) -> bool:
        """Return whether a compiler may have been killed while it wrote this file."""
        if not path.startswith((f"{INDUCTOR}/", f"{HEADERS}/")) or path.endswith(_SOURCES):
            return False
        file = self.root / path
        if file.suffix == ".so" and not is_whole_library(file):
            return True
        name = file.name.partition(".")[0]
        with suppress(OSError):
            return any(each.startswith(name) and each.endswith(_BUILDS) for each in os.listdir(file.parent))
        return False

    def claim(self) -> bool:
        """Take part in the use of the folder, and return whether no other pod uses it now."""
        if self._lock is None:
            self._lock = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def share(self) -> None:
        """Let other pods use the folder too."""
        if self._lock is not None:
            with suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def remove_cut(self, since_ns: int) -> list[str]:
        """Remove what a killed compiler has left half written since then; no worker may run. Return the paths."""
        found = []
        for shard in (self.root / HEADERS, *(self.root / INDUCTOR).iterdir()):
            if shard.is_dir() and shard.stat().st_mtime_ns >= since_ns:
                found += [str(file.relative_to(self.root)) for file in shard.iterdir() if not file.is_dir()]
        cut = [path for path in found if self._is_cut(path)]
        for path in cut:
            (self.root / path).unlink(missing_ok=True)
        for folder in {(self.root / path).parent for path in cut}:
            for build in folder.glob(f"*{_BUILDS}"):
                shutil.rmtree(build, ignore_errors=True)
        self.clear_incoming()
        return cut

    def clear_incoming(self) -> None:
        """Remove what has arrived and has no name."""
        shutil.rmtree(self.root / _INCOMING, ignore_errors=True)

    def incoming(self) -> Path:
        """Return an empty folder for files that arrive. Raises OSError."""
        self.clear_incoming()
        folder = self.root / _INCOMING
        folder.mkdir()
        return folder

    def place(self, staged: Path, path: str) -> bool:
        """Give a file, or a unit, that has arrived its name; False if the folder has it already. Raises OSError."""
        target = make_parent(self.root, path)
        if staged.is_dir():
            with suppress(OSError):
                target.rmdir()  # the empty folder of a cache
            if target.exists():
                return False
            staged.rename(target)
            return True
        try:
            os.link(staged, target)
        except FileExistsError:
            return False
        return True


def is_whole_library(path: Path) -> bool:
    """Return whether a shared library has its last part: the linker writes the first bytes after all others."""
    try:
        with open_file(path) as file:
            data = file.read(_HEADER.size)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return False
    if len(data) < _HEADER.size or not data.startswith(_ELF):
        return False
    if data[4:6] != bytes((_ELF64, _LITTLE_ENDIAN)):
        return True  # a machine whose libraries this does not know
    _, start, entry, count = _HEADER.unpack(data)
    return bool(start + entry * count <= size)
