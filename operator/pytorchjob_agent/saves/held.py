"""The saves that an agent holds: copies of files, and hard links to those of its own that the script only replaces.

They lie in the agent's own folder of the checkpoint directory, so that links cost no memory. A file that no longer is
what its manifest lists takes its save out of the offer: the script has overwritten a linked one.
"""

import fcntl
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.file_list import HeldFile, ManifestError
from pytorchjob_agent.exchange.files import open_file
from pytorchjob_agent.saves import directory, naming, retention
from pytorchjob_agent.saves.held_saves import Choice, HeldSave, SaveId
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.retention import Known
from pytorchjob_agent.system.first_text import first_text

_LIST, _NEW, _ASIDE, _IDENTITY, _LEFT = "manifest.json", "new-", "aside", "identity", "left"
_LOCK, _CLAIM = "lock", "claim"
_LONGEST_JOB = 1024


class FullError(Exception):
    """The memory limit leaves no room for a save; the text has the sizes."""


class SourceError(Exception):
    """A file is not what its manifest lists; the text has the reason."""


class HeldSaves:
    """All saves that this agent holds. Threads may share it."""

    def __init__(self, root: Path, job: str, limit: int) -> None:
        """Take over what an earlier agent of the same pod left in `root`; `limit` in bytes.

        Raises OSError for a directory that cannot be written, or that an agent of another job uses now.
        """
        self.root, self.job, self.limit = root, job, limit
        self._own = root / naming.OWN_FOLDER
        self._lock = threading.RLock()
        self._saves: dict[SaveId, Manifest] = {}
        self._count = 0
        self._pinned: SaveId | None = None
        self._known = Known()
        self._coming: dict[Path, int] = {}
        """Folders of copies that are being received, with the bytes that they will have."""
        self.reserve = 0
        """Bytes that the script is expected to need for its next save."""
        self._own.mkdir(parents=True, exist_ok=True)
        self._lock_file = self._claim()
        self._load()

    def list(self) -> tuple[HeldSave, ...]:
        """Return what is held and unchanged, the newest first."""
        with self._lock:
            for manifest in [*self._saves.values()]:
                if not self._is_unchanged(manifest):
                    self._drop(manifest.id)
            ordered = sorted(self._saves.values(), key=lambda each: (each.id.round, each.id.number), reverse=True)
            return tuple(manifest.held() for manifest in ordered)

    def get(self, id_: SaveId) -> Manifest | None:
        """Return a save that is held and unchanged."""
        with self._lock:
            found = self._saves.get(id_)
            return found if found is not None and self._is_unchanged(found) else None

    def part(self, choice: Choice, owner: int) -> Manifest | None:
        """Return the newest part of a chosen save that this owner wrote; None if it is not held."""
        with self._lock:
            parts = [each for each in self._saves.values() if choice.includes(each.held()) and each.id.owner == owner]
            whole = [each for each in parts if self._is_unchanged(each)]
            return max(whole, key=lambda each: each.id.number, default=None)

    def newest(self, round_: RoundId, owner: int) -> Manifest | None:
        """Return the newest save that this owner wrote in a round."""
        with self._lock:
            found = [each for id_, each in self._saves.items() if (id_.round, id_.owner) == (round_, owner)]
            whole = [each for each in found if self._is_unchanged(each)]
            return max(whole, key=lambda each: each.id.number, default=None)

    @contextmanager
    def pinned(self, id_: SaveId) -> Iterator[None]:
        """Keep a save, as long as the script leaves room for it."""
        self._pinned = id_
        try:
            yield
        finally:
            with self._lock:
                self._pinned = None
                self._trim()

    def read(self, manifest: Manifest, place: int, offset: int, most: int) -> bytes:
        """Return bytes of a file, from memory or as the script has it. No file stays open: that would cost memory.

        Raises SourceError if neither is what the manifest lists.
        """
        file = manifest.files[place]
        for path in (self.path(manifest, place), self.root / file.path):
            with suppress(OSError), open_file(path) as source:
                found = os.fstat(source.fileno())
                if (found.st_size, found.st_mtime_ns) == (file.size, file.mtime_ns):
                    return os.pread(source.fileno(), most, offset)
        raise SourceError(f"{file.path} is not held any more")

    @property
    def folder(self) -> Path:
        """The agent's own folder."""
        return self._own

    def path(self, manifest: Manifest, place: int) -> Path:
        """Return where a file of a save is held."""
        return self._own / manifest.name / str(place)

    def find(self, file: HeldFile) -> Path | None:
        """Return a held file with the same content."""
        with self._lock:
            for manifest in self._saves.values():
                for place, held in enumerate(manifest.files):
                    if held.checksum == file.checksum and held.size == file.size and not held.link:
                        path = self.path(manifest, place)
                        if _is(path, held):
                            return path
        return None

    def number(self, round_: RoundId, owner: int) -> int:
        """Return a number above those of all saves of this owner in a round; what others send does not count."""
        with self._lock:
            own = [id_.number for id_ in self._saves if (id_.round, id_.owner) == (round_, owner)]
            self._count = max([self._count, *own]) + 1
            return self._count

    def new_folder(self) -> Path:
        """Return an empty folder for the files of a save, each named by its place in the manifest."""
        with self._lock:
            self._count += 1
            folder = self._own / f"{_NEW}{self._count}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)  # the script may have removed all that was in its directory
        return folder

    @contextmanager
    def receiving(self, size: int, keep: Sequence[SaveId] = ()) -> Iterator[Path]:
        """Reserve room for a copy, and return an empty folder for its files; it is gone afterwards, unless kept.

        Raises FullError.
        """
        with self._lock:
            if size:
                self.make_room(size, keep)
            folder = self.new_folder()
            self._coming[folder] = size
        try:
            yield folder
        finally:
            with self._lock:
                self._coming.pop(folder, None)
            shutil.rmtree(folder, ignore_errors=True)

    def keep(self, manifest: Manifest, folder: Path) -> None:
        """Keep the files of this folder as a save. Raises OSError."""
        (folder / _LIST).write_text(manifest.to_json())
        with self._lock:
            shutil.rmtree(self._own / manifest.name, ignore_errors=True)
            folder.rename(self._own / manifest.name)
            self._coming.pop(folder, None)
            self._saves[manifest.id] = manifest
            self._trim()

    def make_room(self, size: int, keep: Sequence[SaveId] = ()) -> None:
        """Drop old copies until `size` more bytes fit; raises FullError if they cannot."""
        with self._lock:
            spare = [id_ for id_ in retention.spare(self._held(), self._known) if id_ not in (*keep, self._pinned)]
            if self._is_above(size):
                shutil.rmtree(self._own / _ASIDE, ignore_errors=True)
            while (used := self._used()) + size + self.reserve > self.limit:
                if not (spare or size) and self._pinned in retention.spare(self._held(), self._known):
                    spare.append(self._pinned)  # the script's own save comes first
                if not spare:
                    raise FullError(
                        f"{_mb(used)} of {_mb(self.limit)} are used, {_mb(self.reserve)} are kept free for the"
                        f" script's next save: no room for {_mb(size)}"
                    )
                self._drop(spare.pop(0))

    def _is_above(self, size: int) -> bool:
        return self._used() + size + self.reserve > self.limit

    def _used(self) -> int:
        """Return the bytes in use, with all those of copies that are being received."""
        return directory.used(self.root, [*self._coming]) + sum(self._coming.values())

    def clear(self) -> None:
        """Drop all saves, so that the script has the memory for itself."""
        with self._lock:
            for id_ in [*self._saves]:
                self._drop(id_)

    def begin(self, choice: Choice | None, round_: RoundId) -> None:
        """A round starts with the chosen save, or without one."""
        with self._lock:
            self._known = Known(round_, choice)

    def enter(self, round_: RoundId) -> None:
        """This member comes into a round that runs, in which it may have been before."""
        with self._lock:
            if self._known.round != round_:
                self._known = Known(round_)

    def hear(self, round_: RoundId, label: str) -> None:
        """Take over which save of several writers is whole; it is nothing to another round than the present one."""
        with self._lock:
            if round_ == self._known.round:
                self._known = replace(self._known, whole=label)

    def drop_before(self, choice: Choice) -> None:
        """Drop the saves of rounds before the chosen save's: no round starts with them any more."""
        with self._lock:
            for id_ in [id_ for id_ in self._saves if id_.round < choice.round]:
                self._drop(id_)

    def drop_before_whole(self) -> None:
        """Drop parts that are older than the save that is known to be whole."""
        with self._lock:
            for id_ in retention.before_whole(self._held(), self._known):
                if id_ != self._pinned:
                    self._drop(id_)

    def identity(self) -> str:
        """Return a text that only agents with the same directory have in common. Raises OSError."""
        self._own.mkdir(parents=True, exist_ok=True)
        return first_text(self._own / _IDENTITY, os.urandom(16).hex())

    def aside(self) -> Path:
        """Return a new folder for files that the script must not find. They stay until memory is short."""
        parent = self._own / _ASIDE
        parent.mkdir(parents=True, exist_ok=True)
        folder = parent / str(len(list(parent.iterdir())))
        folder.mkdir()
        return folder

    @property
    def left(self) -> bool:
        """True if this script's saves cannot be held: its files are left to the script. It outlives the agent."""
        return (self._own / _LEFT).exists()

    @left.setter
    def left(self, value: bool) -> None:
        with suppress(OSError):
            if value:
                self._own.mkdir(parents=True, exist_ok=True)
                (self._own / _LEFT).touch()
            else:
                (self._own / _LEFT).unlink(missing_ok=True)

    def close(self) -> None:
        """Let another job use the directory; the end of the process does the same."""
        os.close(self._lock_file)

    def _claim(self) -> int:
        """Return the lock of the directory. Members of the job that share it find each other in the round's store.

        Agents of one job share the lock. Only one at a time reads or writes whose it is.
        """
        lock = os.open(self._own / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        with _alone(self._own / _CLAIM):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if os.pread(lock, _LONGEST_JOB, 0).decode(errors="replace") != self.job:
                    os.close(lock)
                    raise OSError(f"an agent of another job uses {self.root}") from None
            except OSError:  # this file system has no locks
                return lock
            else:
                os.truncate(lock, 0)
                os.pwrite(lock, self.job.encode(), 0)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return lock

    def _load(self) -> None:
        for folder in self._own.iterdir():
            with suppress(OSError, ManifestError):
                manifest = Manifest.from_json((folder / _LIST).read_bytes())
                if manifest.job == self.job and manifest.name == folder.name and self._is_unchanged(manifest):
                    self._saves[manifest.id] = manifest
                    continue
            if folder.is_dir() and folder.name != _ASIDE:
                shutil.rmtree(folder, ignore_errors=True)

    def _trim(self) -> None:
        needed = retention.needed(self._held(), self._known)
        for id_ in [*self._saves]:
            if id_ not in needed and id_ != self._pinned:
                self._drop(id_)

    def _held(self) -> Sequence[HeldSave]:
        return [manifest.held() for manifest in self._saves.values()]

    def _drop(self, id_: SaveId) -> None:
        manifest = self._saves.pop(id_, None)
        if manifest is not None:
            shutil.rmtree(self._own / manifest.name, ignore_errors=True)

    def _is_unchanged(self, manifest: Manifest) -> bool:
        return all(file.link or _is(self.path(manifest, place), file) for place, file in enumerate(manifest.files))


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let one agent at a time go on, where the file system has locks."""
    mutex = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with suppress(OSError):
            fcntl.flock(mutex, fcntl.LOCK_EX)
        yield
    finally:
        os.close(mutex)


def _is(path: Path, file: HeldFile) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (file.size, file.mtime_ns)


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
