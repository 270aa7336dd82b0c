"""Which files a script renamed into place, from the events of the file system. Pure.

A kill cannot cut a rename. Scans alone miss most renames, because a file has its temporary name for milliseconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pytorchjob_agent.saves import naming

CLOSED_AFTER_WRITING, MOVED_FROM, MOVED_TO, CREATED = 0x8, 0x40, 0x80, 0x100
OVERFLOWED, REMOVED, FOLDER = 0x4000, 0x8000, 0x40000000
"""Bits of inotify(7)."""
_MOST_PENDING = 1000


@dataclass(frozen=True, slots=True)
class RenameEvent:
    """Something that happened in a folder."""

    watch: int
    """The number of the folder's watch."""
    bits: int
    cookie: int
    """Equal for the two events of a rename."""
    name: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """What was renamed into place between two scans."""

    files: frozenset[str] = frozenset()
    folders: Mapping[str, str] = field(default_factory=dict)
    """Folders, each with the one at or above it that was renamed with all that was in it."""
    written: frozenset[str] = frozenset()
    """Files that were closed after writing, under the names that they have now."""

    def how(self, path: str) -> str | None:
        """Return the folder that was renamed with this file in it; an empty name: the file itself; None: neither."""
        if path in self.files:
            return ""
        return None if path in self.written else self.folders.get(path.rpartition("/")[0])


class Renames:
    """Follows the events of a directory and of the folders below it."""

    def __init__(self) -> None:
        """Know no folder."""
        self._watched: dict[int, str] = {}
        self._left: dict[int, str] = {}
        """Where renames under way began, by cookie."""
        self._files: set[str] = set()
        self._folders: dict[str, str] = {}
        self._written: set[str] = set()

    def watched(self) -> frozenset[str]:
        """Return the folders that are watched; the empty name is that of the directory."""
        return frozenset(self._watched.values())

    def add(self, watch: int, folder: str) -> None:
        """Note the watch of a folder, under its present name."""
        self._watched[watch] = folder

    def any(self) -> bool:
        """Return whether something was renamed into place since the last `take`."""
        return bool(self._files or self._folders)

    def written(self) -> frozenset[str]:
        """Return the files that were closed after writing since the last `take`."""
        return frozenset(self._written)

    def take(self) -> Renamed:
        """Return what happened since the last call."""
        found = Renamed(frozenset(self._files), self._folders, frozenset(self._written))
        self._forget()
        return found

    def _forget(self) -> None:
        self._files, self._folders, self._written = set(), {}, set()

    def follow(self, events: Iterable[RenameEvent]) -> list[str]:
        """Take events in their order; return the folders that are new here and need a watch."""
        new: list[str] = []
        for event in events:
            if event.bits & OVERFLOWED:
                self._left.clear()
                self._forget()
            elif event.bits & REMOVED:
                self._watched.pop(event.watch, None)
            elif event.watch in self._watched and event.name:
                new += self._change(event)
        return new

    def _change(self, event: RenameEvent) -> list[str]:
        above = self._watched[event.watch]
        path = f"{above}/{event.name}" if above else event.name
        folder = bool(event.bits & FOLDER)
        if event.bits & MOVED_FROM:
            self._leave(event.cookie, path)
        elif event.bits & MOVED_TO:
            self._arrive(self._left.pop(event.cookie, ""), path, folder=folder)
        elif event.bits & CLOSED_AFTER_WRITING:
            self._files.discard(path)
            self._written.add(path)
        return [path] if folder and event.bits & (CREATED | MOVED_TO) else []

    def _leave(self, cookie: int, path: str) -> None:
        self._left[cookie] = path
        while len(self._left) > _MOST_PENDING:  # these left the directory
            self._left.pop(next(iter(self._left)))

    def _arrive(self, old: str, path: str, *, folder: bool) -> None:
        """Note a rename; without an old name it came from where nothing is watched, such as the fence's folder."""
        in_place = not naming.is_temporary(path)
        if folder:
            self._arrive_with_files(old, path, into_place=in_place and naming.is_temporary(old))
            return
        in_place = in_place and (not old or naming.is_temporary(old) or old in self._files)
        self._files -= {old, path}
        self._written -= {old, path}
        self._files |= {path} if in_place else set()

    def _arrive_with_files(self, old: str, path: str, *, into_place: bool) -> None:
        """Note the rename of a folder. Only where it was watched before, later writes to its files are seen."""
        self._watched = {watch: _moved(name, old, path) for watch, name in self._watched.items()}
        self._files = {_moved(name, old, path) for name in self._files}
        self._folders = {_moved(name, old, path): _moved(top, old, path) for name, top in self._folders.items()}
        self._written = {_moved(name, old, path) for name in self._written}
        if into_place:
            self._folders |= dict.fromkeys((name for name in self._watched.values() if is_below(name, path)), path)
            self._written = {name for name in self._written if not is_below(name, path)}


def is_below(name: str, folder: str) -> bool:
    """Return whether a name is a folder's or that of something in it; no name has no folder."""
    return bool(folder) and (name == folder or name.startswith(f"{folder}/"))


def _moved(name: str, old: str, new: str) -> str:
    """Return the name after a folder was renamed."""
    return new + name[len(old) :] if is_below(name, old) else name
