"""When a save is complete, from repeated scans of the checkpoint directory. Pure: scans and times are arguments.

A file is complete if the script renamed it from a temporary name, or if it is closed and has not changed for a while.
A folder in which ranks have marked their parts has appeared as a whole, and is complete at once.
A file that was being written when the workers were killed never is: later it does not differ from a whole file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from pytorchjob_agent.saves import naming
from pytorchjob_agent.saves.renames import Renamed, is_below

REST_SECONDS = 1.0
"""A file that is closed and unchanged for this long is complete."""
FOLDER_REST_SECONDS = 3.0
"""The same for a folder without a last file that its library is known to write: a script may pause between files."""
LONG_OPEN_SECONDS = 60.0
"""A file that is open for this long, like a log, no longer delays the saves of others."""
RESTLESS_SECONDS = 90.0
"""After this time without a moment at which a save could be taken, the directory counts as restless."""
RESTLESS_CHANGES = 10
"""The same for this number of changes of one closed file, without a moment at which it was at rest."""

Identity = tuple[int, int, int, str]


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file as a scan found it."""

    path: str
    """Below the checkpoint directory, with slashes."""
    size: int
    mtime_ns: int
    inode: int
    writing: bool = False
    """True if a worker has it open for writing."""
    link: str = ""
    """The target of a symbolic link within the directory."""

    @property
    def identity(self) -> Identity:
        """What changes with each change of the file, as far as a scan shows."""
        return (self.size, self.mtime_ns, self.inode, self.link)


@dataclass(frozen=True, slots=True)
class Scan:
    """The directory at one moment."""

    files: tuple[SeenFile, ...]
    at: float
    """Seconds."""
    alive: bool = True
    """True if all workers lived after the files were read: then no death has closed a file."""
    renamed: Renamed = field(default_factory=Renamed)
    """What the script renamed into place since the scan before."""


@dataclass(frozen=True, slots=True)
class Local:
    """The ranks of the workers here, and the number of all workers."""

    first: int = 0
    count: int = 1
    world: int = 1


@dataclass(frozen=True, slots=True)
class FoundUnits:
    """What a scan showed."""

    units: Mapping[str, tuple[SeenFile, ...]]
    """The complete units with their files."""
    busy: str = ""
    """The name of a unit that is being written. Empty: none is."""
    together: bool = True
    """True if the units belong together: no other is being written, or only such as began after these were written."""
    restless: bool = False
    """True if for a long time, or through many changes, the units have not belonged together at any moment."""


@dataclass(slots=True)
class _Tracked:
    """One file between two scans."""

    identity: Identity
    first_seen: float
    first_open: bool = False
    """True if it was open when it was first seen."""
    closed_since: float | None = None
    open_since: float | None = None
    changes: int = 0
    """How often it was closed and changed again, since it was complete."""


@dataclass
class Recognition:
    """Follows the files of one directory."""

    local: Local = field(default_factory=Local)
    _tracked: dict[str, _Tracked] = field(default_factory=dict)
    _done: dict[str, Identity] = field(default_factory=dict)
    _torn: dict[str, Identity] = field(default_factory=dict)
    _temporary: dict[int, SeenFile] = field(default_factory=dict)
    """Files that have, or had, a temporary name, by inode, as they were under that name."""
    _renamed: dict[str, tuple[Identity, bool]] = field(default_factory=dict)
    """Files as they were at the first scan after a rename into place; True: their whole unit was renamed."""
    _known: set[str] = field(default_factory=set)
    """Units that were complete once."""
    _apart_since: float | None = None
    _gone_at: float = -inf
    """When a file was last seen to be gone."""
    kept_open: dict[str, int] = field(default_factory=dict)
    """Files that the script has kept open, such as tables, with their inodes: they are in no save."""
    long_open: set[str] = field(default_factory=set)
    """Files that were open for a second or more at some time: tables, or large saves."""

    def accept(self, files: Sequence[SeenFile]) -> None:
        """Take these files as complete: nothing has written them since they were verified."""
        for file in files:
            self._done[file.path] = file.identity
            self._known.add(naming.unit_of(file.path))
            self._torn.pop(file.path, None)
            self._temporary.pop(file.inode, None)  # what is written to it from now on is no rename
            self._renamed.pop(file.path, None)

    def reject(self, files: Sequence[SeenFile]) -> None:
        """Take these files as torn until they change."""
        for file in files:
            self._torn[file.path] = file.identity
            self._done.pop(file.path, None)

    def follow(self, scan: Scan) -> FoundUnits:
        """Return what is complete after one more scan."""
        files = self._track(scan)
        complete: dict[str, tuple[SeenFile, ...]] = {}
        late: dict[str, tuple[SeenFile, ...]] = {}
        for name, members in _by_unit(files).items():
            if all(map(self._is_done, members)) or self._completes(name, members, scan):
                self.accept(members)
                complete[name] = members
            elif naming.is_marked(file.path for file in members):
                self.reject(members)
            elif self._delays(members, scan.at):
                late[name] = members
        for name in [name for name, members in late.items() if self._is_beside(name, members, complete)]:
            self.kept_open |= {file.path: file.inode for file in late.pop(name) if file.writing}
        together = self._are_together(complete, late)
        self._apart_since = None if together else scan.at if self._apart_since is None else self._apart_since
        changes = max((self._tracked[file.path].changes for members in late.values() for file in members), default=0)
        restless = self._apart_since is not None and (
            scan.at - self._apart_since >= RESTLESS_SECONDS or changes >= RESTLESS_CHANGES
        )
        return FoundUnits(complete, next(iter(late), ""), together, restless)

    def _are_together(
        self, complete: Mapping[str, tuple[SeenFile, ...]], late: Mapping[str, tuple[SeenFile, ...]]
    ) -> bool:
        """Return whether the complete units are all that was there at one quiet moment.

        A script that saves often never leaves the directory at rest. Then it is the moment before the newest save
        began, if that is of the kind that was written last. Otherwise a save may be of several kinds, and half of it
        is complete. A unit that was complete before is another matter: the rest is older than what is held. A script
        that deletes files once the newest save is written has not finished it before that.
        """
        if not late:
            return True
        written = {name: self._written(members) for name, members in complete.items()}
        last = max(written, key=lambda name: written[name], default="")
        new = not late.keys() & self._known and {naming.kind(name) for name in late} == {naming.kind(last)}
        files = [self._tracked[file.path] for members in late.values() for file in members]
        began = min(file.first_seen for file in files)
        return new and written[last] < began and not any(map(self._deletes, files))

    def _deletes(self, file: _Tracked) -> bool:
        """Return whether files have gone since a file began, so that they may go with its save."""
        return self._gone_at > file.first_seen or (self._gone_at == file.first_seen and not file.first_open)

    def _written(self, members: Sequence[SeenFile]) -> float:
        """Return since when a complete unit has not changed."""
        closed = [self._tracked[file.path].closed_since for file in members]
        return max(inf if at is None else at for at in closed)

    def end(self, scan: Scan, *, clean: bool, is_proved: Callable[[SeenFile], bool] = lambda _: False) -> FoundUnits:
        """Return what is complete after the end of all workers; `clean`: all of them ended with success.

        After any other end, what was being written stays torn for good, unless its format proves that it is whole.
        """
        found = self.follow(scan)
        units = dict(found.units)
        late = False
        for name, members in _by_unit([file for file in scan.files if not self._is_ignored(file)]).items():
            if name in units:
                continue
            whole = self._has_all(name, members) and not any(self._is_torn(file) for file in members)
            if whole and (clean or all(self._is_done(file) or is_proved(file) for file in members)):
                self.accept(members)
                units[name] = members
            else:
                late = late or not found.together
                self.reject([file for file in members if not self._is_done(file)])
        self._tracked.clear()
        return FoundUnits(units, together=not late)

    def _track(self, scan: Scan) -> list[SeenFile]:
        """Note the changes since the last scan; return the files that may be checkpoints."""
        present = {file.inode for file in scan.files}
        self._temporary = {inode: file for inode, file in self._temporary.items() if inode in present}
        for file in scan.files:
            if naming.is_temporary(file.path):
                self._temporary[file.inode] = file
        self.kept_open = {path: inode for path, inode in self.kept_open.items() if inode in present}
        self.long_open &= {file.path for file in scan.files}
        files = [file for file in scan.files if not self._is_ignored(file)]
        tracked: dict[str, _Tracked] = {}
        for file in files:
            known = self._tracked.get(file.path)
            first = (scan.at, file.writing) if known is None else (known.first_seen, known.first_open)
            opened = None if known is None else known.open_since
            now = known if known is not None and known.identity == file.identity else _Tracked(file.identity, *first)
            if known is not None and now is not known and not self._was_done(file.path, known):
                now.changes = known.changes + (known.closed_since is not None)
            now.open_since = (scan.at if opened is None else opened) if file.writing else None
            now.closed_since = None if file.writing else (scan.at if now.closed_since is None else now.closed_since)
            tracked[file.path] = now
            if now.open_since is not None and scan.at - now.open_since >= LONG_OPEN_SECONDS:
                self.kept_open[file.path] = file.inode
            if now.open_since is not None and scan.at - now.open_since >= REST_SECONDS:
                self.long_open.add(file.path)
        if self._tracked.keys() - tracked.keys():
            self._gone_at = scan.at
        self._tracked = tracked
        self._note_renames(files, scan)
        self._done = {path: identity for path, identity in self._done.items() if path in tracked}
        return files

    def _note_renames(self, files: Sequence[SeenFile], scan: Scan) -> None:
        """Note the state of each file that was renamed; what changes it later is no rename."""
        whole = set(self._done.values())
        for file in files:
            unit, folder = naming.unit_of(file.path), scan.renamed.how(file.path)
            with_unit = _had_temporary_folder(self._temporary.get(file.inode), file, scan)
            if folder is not None:
                with_unit = is_below(unit, folder)
            if unit == file.path and file.identity in whole:
                self._done[file.path] = file.identity  # a complete file has another name now
            elif with_unit is not None and not file.writing:
                self._temporary.pop(file.inode, None)
                self._renamed[file.path] = (file.identity, with_unit)

    def _completes(self, unit: str, members: tuple[SeenFile, ...], scan: Scan) -> bool:
        if any(self._is_torn(file) for file in members) or not self._has_all(unit, members):
            return False
        paths = [file.path for file in members]
        if naming.is_marked(paths) or self._is_committed(unit, members):
            return True
        several = paths[0].startswith(f"{unit}/") and not naming.is_committed(unit, paths)
        rest = FOLDER_REST_SECONDS if several else REST_SECONDS
        return all(
            self._is_done(file) or self._was_renamed(file, with_unit=several) or self._rests(file, scan, rest)
            for file in members
        )

    def _was_renamed(self, file: SeenFile, *, with_unit: bool) -> bool:
        identity, whole = self._renamed.get(file.path, (None, False))
        return identity == file.identity and (whole or not with_unit) and not file.writing

    def _is_committed(self, unit: str, members: Sequence[SeenFile]) -> bool:
        """Return whether DCP has renamed its index into place after all ranks had written; it is as new as they are."""
        index = next((file for file in members if file.path == f"{unit}/{naming.DCP_INDEX}"), None)
        return (
            index is not None
            and self._was_renamed(index, with_unit=False)
            and all(file.mtime_ns <= index.mtime_ns and not file.writing for file in members)
        )

    def _is_done(self, file: SeenFile) -> bool:
        return self._done.get(file.path) == file.identity

    def _was_done(self, path: str, known: _Tracked) -> bool:
        return self._done.get(path) == known.identity

    def _rests(self, file: SeenFile, scan: Scan, seconds: float) -> bool:
        since = self._tracked[file.path].closed_since
        return scan.alive and since is not None and scan.at - since >= seconds

    def _is_torn(self, file: SeenFile) -> bool:
        return self._torn.get(file.path) == file.identity

    def _has_all(self, unit: str, members: Sequence[SeenFile]) -> bool:
        """Return whether all files are there that the workers here write: one for each rank, and the last one."""
        paths = [file.path for file in members]
        if naming.is_marked(paths):
            return naming.has_marked(paths)
        ranks = {rank for path in paths if (rank := naming.rank_of(path, self.local.world)) is not None}
        own = set(range(self.local.first, self.local.first + self.local.count))
        if ranks and not ranks >= own:
            return False
        return self.local.first > 0 or not naming.lacks_commit(unit, paths)

    def _is_ignored(self, file: SeenFile) -> bool:
        kept_open = self.kept_open.get(file.path) == file.inode
        return kept_open or naming.is_temporary(file.path) or naming.is_log(file.path)

    def _is_beside(self, name: str, members: Sequence[SeenFile], complete: Mapping[str, tuple[SeenFile, ...]]) -> bool:
        """Return whether a unit was opened before another one was written, and is still open: a table beside it."""
        unfinished = [self._tracked[file.path] for file in members if not self._is_done(file)]
        opened = [file.open_since for file in unfinished if file.open_since is not None]
        if not opened or len(opened) < len(unfinished):
            return False
        return any(
            max(opened) < self._written(others) < inf
            for other, others in complete.items()
            if naming.kind(other) != naming.kind(name)
        )

    def _delays(self, members: Sequence[SeenFile], now: float) -> bool:
        """Return whether a unit that is not complete may become so: then no save of the directory is taken."""
        if all(self._is_torn(file) or self._is_done(file) for file in members):
            return False
        opened = [self._tracked[file.path].open_since for file in members]
        return not any(since is not None and now - since >= LONG_OPEN_SECONDS for since in opened)


def _had_temporary_folder(before: SeenFile | None, now: SeenFile, scan: Scan) -> bool | None:
    """Return whether a file had a temporary name, as scans show it: True if its folder had; None if it was not whole.

    A script may rename a file that it still writes, and be killed.
    """
    if before is None or not (scan.alive or (before.identity == now.identity and not before.writing)):
        return None
    return naming.is_temporary(before.path.rpartition("/")[0])


def _by_unit(files: Sequence[SeenFile]) -> dict[str, tuple[SeenFile, ...]]:
    units: dict[str, tuple[SeenFile, ...]] = {}
    for file in sorted(files, key=lambda file: file.path):
        name = naming.unit_of(file.path)
        units[name] = (*units.get(name, ()), file)
    return units
