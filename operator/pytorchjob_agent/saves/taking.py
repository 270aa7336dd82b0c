"""Takes a save: links its files into the agent's folder, reads them once for their checksums, writes the manifest."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from pytorchjob_agent.contract.held_saves import LABEL_LIMIT, SaveId
from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.saves import formats, naming
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.manifest import MOST_BYTES, MOST_FILES, HeldFile, Manifest
from pytorchjob_agent.saves.recognition import Identity, SeenFile

_CHUNK = 1 << 20


class StoppedError(Exception):
    """The round ended while a save was read."""


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


class Taking:
    """Takes one save after the other of one round."""

    def __init__(self, held: HeldSaves, writer: Writer, base: Mapping[str, tuple[SeenFile, ...]]) -> None:
        """Start a round; `base` are the complete units with which it starts."""
        self._held, self._writer = held, writer
        self._units = dict(base)
        self._checksums: dict[Identity, str] = {}
        self._writers, self._label = 1, ""
        self._labels: set[str] = set()

    def take(self, units: Mapping[str, tuple[SeenFile, ...]], goes_on: Callable[[], bool] | None) -> Manifest | None:
        """Hold these units as one save, if any has changed; None otherwise.

        `goes_on` is asked now and then, and makes the reading slow; None: read at full speed. Raises NotTakenError,
        TornError, StoppedError and OSError.
        """
        wanted = naming.newest([*units.items()], lambda unit: unit[0], _changed_at)
        changed = {name: files for name, files in wanted if self._units.get(name) != files}
        if not changed:
            return None
        files = [file for _, members in wanted for file in members]
        if len(files) > MOST_FILES:
            raise NotTakenError(f"{len(files)} files are more than a save may have")
        writers, label = self._together(changed)
        id_ = SaveId(self._writer.round, self._writer.rank, self._held.number())
        manifest = self._link(Manifest(self._writer.job, id_, (), writers, label), files, goes_on)
        self._units, self._writers, self._label = dict(units), writers, label
        self._labels |= {label}
        self._held.reserve = sum(file.size for members in changed.values() for file in members)
        return manifest

    def _together(self, changed: Mapping[str, tuple[SeenFile, ...]]) -> tuple[int, str]:
        """Return how many members wrote this save, and the name that their parts have in common."""
        parts = [name for name, files in changed.items() if any(_has_rank(file) for file in files)]
        if self._writer.members == 1 or not parts:
            return self._writers, self._label
        label = max(parts, key=naming.numbers)
        if not naming.has_step(label) or label in self._labels or len(label) > LABEL_LIMIT:
            raise NotTakenError(
                f"each rank writes {label[:LABEL_LIMIT]}, more than once under this name:"
                " parts of different saves would be mixed; put the step into the name"
            )
        return self._writer.members, label

    def _link(self, manifest: Manifest, files: list[SeenFile], goes_on: Callable[[], bool] | None) -> Manifest:
        folder = self._held.new_folder()
        try:
            found = [self._hold(file, folder / str(place), goes_on) for place, file in enumerate(files)]
            manifest = replace(manifest, files=tuple(found))
            if len(manifest.to_json()) > MOST_BYTES:
                raise NotTakenError("the names of its files are too long together")
            self._held.keep(manifest, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return manifest

    def _hold(self, file: SeenFile, link: Path, goes_on: Callable[[], bool] | None) -> HeldFile:
        if file.link:
            return HeldFile(file.path, 0, file.mtime_ns, "", file.link)
        try:
            os.link(self._held.root / file.path, link, follow_symlinks=False)
            self._compare(file, link)
            checksum = self._checksums.get(file.identity) or _checksum(file, link, goes_on)
            self._compare(file, link)
        except FileNotFoundError:
            raise TornError(file, "is gone") from None
        self._checksums[file.identity] = checksum
        return HeldFile(file.path, file.size, file.mtime_ns, checksum)

    def _compare(self, file: SeenFile, link: Path) -> None:
        found = os.lstat(link)
        if (found.st_size, found.st_mtime_ns, found.st_ino) != (file.size, file.mtime_ns, file.inode):
            raise TornError(file, "has changed")


def _has_rank(file: SeenFile) -> bool:
    return naming.rank_of(file.path) is not None


def _changed_at(unit: tuple[str, tuple[SeenFile, ...]]) -> int:
    return max(file.mtime_ns for file in unit[1])


def _checksum(file: SeenFile, path: Path, goes_on: Callable[[], bool] | None) -> str:
    """Return the SHA-256 of a file; raises TornError if its format shows that it is cut."""
    digest = sha256()
    head = tail = b""
    with path.open("rb") as source:
        while True:
            started = time.monotonic()
            data = source.read(_CHUNK)
            if not data:
                break
            head = head or data[: formats.HEAD_BYTES]
            tail = (tail + data)[-formats.TAIL_BYTES :]
            digest.update(data)
            if goes_on is not None:
                if not goes_on():
                    raise StoppedError
                time.sleep(time.monotonic() - started)  # half of a core at most
    if not formats.is_whole(file.path, file.size, head, tail):
        raise TornError(file, "is cut")
    return digest.hexdigest()
