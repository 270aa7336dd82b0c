"""Decides which complete files are one save (`Bursts`), and takes it (`Taking`): files, checksums and manifest.

A unit is what a script saves at once, and its kind is its name without numbers (`naming`).
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.checksum import PIECE_BYTES, count_of, length_of, of_pieces
from pytorchjob_agent.exchange.file_list import MOST_BYTES, HeldFile
from pytorchjob_agent.exchange.files import open_file
from pytorchjob_agent.saves import formats, naming
from pytorchjob_agent.saves.held import FullError, HeldSaves
from pytorchjob_agent.saves.held_saves import LABEL_LIMIT, SaveId
from pytorchjob_agent.saves.manifest import MOST_FILES, Manifest, Together
from pytorchjob_agent.saves.recognition import Identity, SeenFile
from pytorchjob_agent.saves.streams import in_threads

_CLOSER = 1.5
OnPiece = Callable[[float], None]
"""Called after each piece of a file that is read, with the seconds that this took. May raise, to read no further."""
ALONE_SECONDS = 10.0
"""After this time without its other files, a part of a known save is a save of its own."""
_MOST_KINDS = 256
"""Kinds of files in all known saves; of a script with more of them, a manifest does not list the known saves."""


class NotTakenError(Exception):
    """A save cannot be held; the text has the reason."""


class TornError(NotTakenError):
    """A file is cut, or has changed while it was read."""

    def __init__(self, file: SeenFile, reason: str) -> None:
        """Keep the file."""
        super().__init__(f"{file.path} {reason}")
        self.file = file


@dataclass(frozen=True, slots=True)
class Writer:
    """Whose workers write here."""

    job: str
    round: RoundId
    rank: int
    """The rank of this member."""
    members: int
    """Members of the round."""
    world: int
    """Workers of the round."""


class Bursts:
    """Which kinds of units the script writes together, and at least how many of each: learned from its saves. Pure.

    A save of several files has no last file that its names show. What was written together once is awaited together.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._known: dict[frozenset[str], Counter[str]] = {}
        self._last: list[tuple[Counter[str], float]] = []
        """What has changed since a kind changed twice, and when: perhaps not yet all of a save."""
        self._pending: tuple[Mapping[str, object], float] | None = None
        self._restored = frozenset[str]()

    @property
    def known(self) -> Together:
        """What is certain of the script's saves, for the manifest of the next one."""
        found = tuple(tuple(sorted(save.items())) for save in self._known.values())
        return found if sum(map(len, found)) <= _MOST_KINDS else ()

    def take_over(self, known: Together) -> None:
        """Know what the writer of a restored save knew, if this agent has seen no save."""
        if not self.knows:
            self._known = {frozenset(save): Counter(save) for save in map(dict, known)}

    def begin(self, units: Collection[str]) -> None:
        """Note the units with which a round starts: an agent that has seen no save yet awaits all that they have."""
        self._restored, self._pending = frozenset(units), None

    def is_whole(self, changed: Mapping[str, object], now: float, *, ended: bool = False) -> bool:
        """Return whether these changed units, with what is in them, are all of a save. `now` in seconds.

        `ended`: the workers have been killed. A part of a known save counts as a save of its own after ten seconds, or
        when the next one has begun. Files of which none has been written twice
        since the last save belong to the same step.
        """
        kinds = Counter(map(naming.kind, changed))
        self._learn_from_next(changed)
        last = sum((each for each, _ in self._last), Counter[str]())
        if kinds.keys() & last.keys():
            self._close(now)
            last = Counter()
        saves = [*self._known.values(), *([last] if last else [])]
        if any(save.keys() == kinds.keys() and save <= kinds for save in saves) or (
            not saves and self._replaces_all(changed)
        ):
            self._pending = None
            return True
        if saves and not any(kinds.keys() <= save.keys() for save in saves):
            return not ended or not (self._known or self._restored)
        if self._pending is None or Counter(map(naming.kind, self._pending[0])) != kinds:
            self._pending = (changed, now)
        return not ended and now - self._pending[1] >= ALONE_SECONDS

    def _learn_from_next(self, changed: Mapping[str, object]) -> None:
        """If one of these units is of a later save, note that what was awaited before was a whole save."""
        earlier: Mapping[str, object] = {} if self._pending is None else self._pending[0]
        if any(self._follows(unit, what, earlier) for unit, what in changed.items()):
            save = Counter(map(naming.kind, earlier))
            self._known[frozenset(save)] = save

    def _follows(self, unit: str, what: object, earlier: Mapping[str, object]) -> bool:
        """Return whether a unit was written again since, or is of a later step: shards of one share a number."""
        if unit in earlier:
            return earlier[unit] != what
        new = [each for each in earlier if each not in self._restored and naming.kind(each) == naming.kind(unit)]
        later = bool(new) and not any(naming.have_a_number_in_common(unit, each) for each in new)
        return later and unit not in self._restored

    def _replaces_all(self, changed: Collection[str]) -> bool:
        """Return whether each restored unit has changed, or has successors of its kind under other names.

        A kind has as many successors as there are restored units with a number in common: the shards of one step.
        """
        new = Counter(naming.kind(unit) for unit in changed if unit not in self._restored)
        common = Counter((naming.kind(unit), at) for unit in self._restored for at in enumerate(naming.numbers(unit)))
        wanted = Counter[str]()
        for (kind, _), count in common.items():
            wanted[kind] = max(wanted[kind], count)
        missing = {naming.kind(unit) for unit in self._restored if unit not in changed}
        return all(new[kind] >= max(wanted[kind], 1) for kind in missing)

    def learn(self, changed: Collection[str], now: float) -> None:
        """Note that a save has changed these units, and no others; `is_whole` was asked before."""
        self._last.append((Counter(map(naming.kind, changed)), now))

    def _close(self, now: float) -> None:
        """A kind changes again: what came before are whole saves.

        Files of one save lie closer together than two saves do. Files that alternate are saves of their own.
        """
        between = (now - self._last[-1][1]) / _CLOSER
        save, at = self._last[0]
        for kinds, since in [*self._last[1:], (Counter[str](), now)]:
            if since - at < between:
                save = save + kinds
            else:
                known = self._known.get(frozenset(save), save)
                self._known[frozenset(save)] = known & save
                save = kinds
            at = since
        self._last = []

    @property
    def knows(self) -> bool:
        """True once a save is known."""
        return bool(self._known or self._last)


class Replacing:
    """Learns which kinds of files the script only replaces, and which it overwrites. Pure.

    A link to a file costs no memory, but it changes with a file that is overwritten. Until a kind is known to be
    replaced, its files are copied.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._inodes: dict[str, set[int]] = {}
        self._replaced: set[str] = set()
        self._overwritten: set[str] = set()

    def learn(self, before: Iterable[SeenFile], now: Iterable[SeenFile]) -> None:
        """Compare the files of two saves, one after the other."""
        earlier = {file.path: file for file in before}
        for file in earlier.values():
            self._inodes.setdefault(naming.kind(file.path), set()).add(file.inode)
        for file in now:
            kind, known = naming.kind(file.path), earlier.get(file.path)
            if known is None or known.inode != file.inode:
                self._replaced |= {kind} if self._inodes.get(kind, set()) - {file.inode} else set()
            elif known.identity != file.identity:
                self._overwritten.add(kind)

    def is_sure(self, path: str) -> bool:
        """Return whether the script only replaces files of this kind."""
        kind = naming.kind(path)
        return kind in self._replaced and kind not in self._overwritten


class Taking:
    """Takes one save after the other of one round."""

    def __init__(
        self,
        held: HeldSaves,
        writer: Writer,
        base: Mapping[str, tuple[SeenFile, ...]],
        bursts: Bursts | None = None,
        replacing: Replacing | None = None,
        readers: int = 1,
    ) -> None:
        """Start a round; `base` are the complete units with which it starts. `readers`: threads that read a file."""
        self._readers = readers
        self._held, self._writer, self._bursts = held, writer, bursts or Bursts()
        self._replacing = replacing or Replacing()
        self._units = dict(base)
        self._bursts.begin(base)
        self._checksums: dict[Identity, str] = {}
        self._label = ""
        """Of the last save, if each rank has a part of it."""
        self._labels: set[str] = set()
        self.awaits = False
        """True if the last units were not all that the script saves together."""

    def take(
        self, units: Mapping[str, tuple[SeenFile, ...]], on_piece: OnPiece = lambda _: None, *, ended: bool = False
    ) -> Manifest | None:
        """Hold these units as one save, if any has changed or is gone and nothing more is awaited; None otherwise.

        `ended`: the workers have been killed. Raises NotTakenError, TornError, OSError and what `on_piece` raises.
        """
        changed = {name: files for name, files in units.items() if self._units.get(name) != files}
        if not changed and (not units or self._units.keys() <= units.keys()):
            return None
        self.awaits = bool(changed) and not self._bursts.is_whole(changed, time.monotonic(), ended=ended)
        if self.awaits:
            return None
        files = [file for members in units.values() for file in members]
        if len(files) > MOST_FILES:
            raise NotTakenError(f"{len(files)} files are more than a save may have")
        self._replacing.learn((file for members in self._units.values() for file in members), files)
        writers, label = self._together(units, changed)
        writer = self._writer.round, self._writer.rank
        id_ = SaveId(*writer, self._held.number(*writer))
        manifest = Manifest(self._writer.job, id_, (), writers, label, self._bursts.known)
        manifest = self._keep(manifest, files, on_piece)
        self._units, self._label = dict(units), label if writers > 1 else ""
        if self._parts(changed):
            self._labels |= {label}
        if changed:
            self._bursts.learn(changed, time.monotonic())
            self._held.reserve = sum(file.size for members in changed.values() for file in members)
        return manifest

    def _together(
        self, units: Mapping[str, tuple[SeenFile, ...]], changed: Mapping[str, tuple[SeenFile, ...]]
    ) -> tuple[int, str]:
        """Return how many members wrote this save, and the name that their parts have in common.

        Each rank saves if any file is named for a rank, whatever has changed: a save without the other ranks' files
        must not count as whole.
        """
        parts = self._parts(units)
        if self._writer.members == 1 or not parts:
            return 1, _largest(changed)
        new = self._parts(changed)
        if not new and self._label:
            return self._writer.members, self._label
        label = max(new or parts, key=naming.numbers)
        if not naming.has_step(label) or (new and label in self._labels) or len(label) > LABEL_LIMIT:
            raise NotTakenError(
                f"each rank writes {label[:LABEL_LIMIT]}, more than once under this name:"
                " parts of different saves would be mixed; put the step into the name"
            )
        return self._writer.members, label

    def _parts(self, units: Mapping[str, tuple[SeenFile, ...]]) -> list[str]:
        """Return the units with files that are named for a rank."""
        world = self._writer.world
        return [
            name for name, files in units.items() if any(naming.rank_of(file.path, world) is not None for file in files)
        ]

    def _keep(self, manifest: Manifest, files: list[SeenFile], on_piece: OnPiece) -> Manifest:
        changing = {file.path for file in files if not file.link and not self._replacing.is_sure(file.path)}
        copied = sum(file.size for file in files if file.path in changing and self._copy_of(file) is None)
        try:
            folder = self._held.receiving(copied)
            return self._fill(manifest, files, folder, changing, on_piece)
        except FullError:  # the script's own file is better than nothing
            return self._fill(manifest, files, self._held.receiving(0), frozenset(), on_piece)

    def _fill(
        self,
        manifest: Manifest,
        files: list[SeenFile],
        receiving: AbstractContextManager[Path],
        changing: Collection[str],
        on_piece: OnPiece,
    ) -> Manifest:
        with receiving as folder:
            found = [
                self._hold(file, folder / str(place), on_piece, copies=file.path in changing)
                for place, file in enumerate(files)
            ]
            manifest = replace(manifest, files=tuple(found))
            if len(manifest.to_json()) > MOST_BYTES:
                raise NotTakenError("the names of its files are too long together")
            self._held.keep(manifest, folder)
        return manifest

    def _hold(self, file: SeenFile, target: Path, on_piece: OnPiece, *, copies: bool) -> HeldFile:
        if file.link:
            return HeldFile(file.path, 0, file.mtime_ns, "", file.link)
        try:
            checksum = self._bring(file, target, on_piece, copies=copies)
        except FileNotFoundError:
            raise TornError(file, "is gone") from None
        self._checksums[file.identity] = checksum
        return HeldFile(file.path, file.size, file.mtime_ns, checksum)

    def _bring(self, file: SeenFile, target: Path, on_piece: OnPiece, *, copies: bool) -> str:
        """Make the held file, and return its checksum."""
        if earlier := self._copy_of(file):
            os.link(earlier, target)
            return self._checksums[file.identity]
        # A link first: while it is read, the script may replace the file or delete it.
        link = target.with_suffix(".link") if copies else target
        os.link(self._held.root / file.path, link, follow_symlinks=False)
        self._compare(file, link)
        known = "" if copies else self._checksums.get(file.identity, "")
        checksum = known or _checksum(file, link, on_piece, target if copies else None, self._readers)
        self._compare(file, link)
        if copies:
            os.utime(target, ns=(file.mtime_ns, file.mtime_ns))
            link.unlink()
        return checksum

    def _copy_of(self, file: SeenFile) -> Path | None:
        """Return a copy of this file that an earlier save has."""
        checksum = self._checksums.get(file.identity)
        found = self._held.find(HeldFile(file.path, file.size, file.mtime_ns, checksum)) if checksum else None
        if found is None:
            return None
        there = found.stat()
        return found if there.st_ino != file.inode and there.st_mtime_ns == file.mtime_ns else None

    def _compare(self, file: SeenFile, link: Path) -> None:
        found = os.lstat(link)
        if (found.st_size, found.st_mtime_ns, found.st_ino) != (file.size, file.mtime_ns, file.inode):
            raise TornError(file, "has changed")


def _largest(changed: Mapping[str, tuple[SeenFile, ...]]) -> str:
    """Return the name of the unit with most bytes; empty if it is too long, or files are only gone."""
    found = max(changed, key=lambda name: sum(file.size for file in changed[name]), default="")
    return found if len(found) <= LABEL_LIMIT else ""


def is_proved(path: Path, file: SeenFile) -> bool:
    """Return whether the format of a file shows that it is whole. Raises OSError."""
    return bool(file.link) or formats.is_proved(file.path, file.size, *_ends(path, file.size))


def _ends(path: Path, size: int) -> tuple[bytes, bytes]:
    """Return the first and the last bytes of a file."""
    with open_file(path) as source:
        head = os.pread(source.fileno(), formats.HEAD_BYTES, 0)
        return head, os.pread(source.fileno(), formats.TAIL_BYTES, max(size - formats.TAIL_BYTES, 0))


def _checksum(file: SeenFile, path: Path, on_piece: OnPiece, copy: Path | None, readers: int) -> str:
    """Return the checksum of a file, and copy it; raises TornError if its format shows that it is cut."""
    with open_file(path) as source, nullcontext() if copy is None else copy.open("wb", buffering=0) as target:

        def read(number: int) -> bytes:
            started = time.monotonic()
            data = os.pread(source.fileno(), PIECE_BYTES, number * PIECE_BYTES)
            if len(data) != length_of(file.size, number):
                raise TornError(file, "has changed")
            if target is not None:
                _write_at(target.fileno(), data, number * PIECE_BYTES)
            checksum = sha256(data).digest()
            on_piece(time.monotonic() - started)
            return checksum

        checksums = in_threads(read, count_of(file.size), readers)
    if not formats.is_whole(file.path, file.size, *_ends(path, file.size)):
        raise TornError(file, "is cut")
    return of_pieces(checksums)


def _write_at(number: int, data: bytes, offset: int) -> None:
    while data:
        count = os.pwrite(number, data, offset)
        data, offset = data[count:], offset + count
