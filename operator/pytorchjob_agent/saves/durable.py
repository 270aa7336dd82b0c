"""The saves in the durable directory, each in a folder that appears by one rename once all of it is on the storage.

    job-1/1.4_0_7/files/latest.pt       the third number is the save's, the second the rank of its owner
    job-1/1.4_0_7/manifest.json
    .pytorchjob-fence/jobs              the jobs that have used the directory, in their order

No folder is ever changed or replaced. So a late write of an earlier round or job spoils nothing: the newest counts.
Every call may raise OSError, and may block for as long as the storage does.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from pytorchjob_agent.checkpoint import fence
from pytorchjob_agent.contract.fields import MAX_MEMBERS
from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.checksum import Checksum
from pytorchjob_agent.exchange.file_list import MOST_BYTES, HeldFile, ManifestError
from pytorchjob_agent.exchange.files import make_parent
from pytorchjob_agent.saves.held import SourceError
from pytorchjob_agent.saves.held_saves import (
    Choice,
    HeldSave,
    Parts,
    SaveId,
    complete,
)
from pytorchjob_agent.saves.manifest import Manifest, id_of

CHUNK = 8 << 20
"""Bytes that are written and brought to the storage at once."""
_FILES, _LIST, _SPARED, _NEW, _OLD = "files", "manifest.json", "spared", ".new-", ".old-"
_MOST_FOLDERS = 20_000
_DIGITS = 2**31 - 1
_MOST_LISTED, _MOST_INCOMPLETE = 8, 4
"""Saves, and those with missing parts, that a member lists for the others: the newest."""

Read = Callable[[int, int], bytes]
"""Returns bytes of the file at a place of the manifest, from an offset on."""


@dataclass(frozen=True, slots=True)
class StoredSave:
    """One owner's save in the directory."""

    folder: Path
    manifest: Manifest
    """As this job sees it: a save of an earlier job counts as one of a round before all rounds of this job."""
    spared: bool = False
    """True if it stays whatever comes later."""

    def file(self, place: int) -> Path:
        """Return a file of the save."""
        return self.folder / _FILES / self.manifest.files[place].path


class DurableSaves:
    """The durable directory, as one job sees it."""

    def __init__(self, root: Path, job: str) -> None:
        """Touch nothing yet."""
        self.root, self._job = root, job

    def enter(self) -> int:
        """Take over the directory from an earlier job; return this job's number. Raises FencedError."""
        if not self.root.parent.is_dir():
            raise FileNotFoundError(f"{self.root.parent} does not exist: mount the volume there")
        return fence.enter(self.root, self._job)

    def stored(self) -> list[StoredSave]:
        """Return the saves with which this job may start: its own ones, and the newest of the job before."""
        known = fence.jobs(self.root)
        number = known.get(self._job, max(known.values(), default=0) + 1)
        found = [*self._of(number, self._job)] if self._job in known else []
        for job, earlier in sorted(known.items(), key=lambda item: item[1], reverse=True):
            theirs = [*self._of(earlier, job)] if earlier < number else []
            newest = _newest(theirs)
            if newest:
                parts = [each for each in theirs if newest[0].includes(each.manifest.held())]
                return found + [_adopted(each, self._job, earlier) for each in parts]
        return found

    def write(self, manifest: Manifest, read: Read, step: Callable[[int], None]) -> None:
        """Copy a save here, unless it is here; `step` is called between any two operations, with the bytes written.

        Raises SourceError if a file has changed meanwhile, and FencedError after a later job has come.
        """
        final = self._folder(self.enter()) / manifest.name
        if final.exists():
            return
        new = final.parent / f"{_NEW}{manifest.name}-{os.urandom(4).hex()}"
        new.mkdir(parents=True)
        try:
            self._fill(new, manifest, read, step)
            self.enter()
            step(0)
            with suppress(FileExistsError):
                _rename(new, final)
            step(0)
        except Exception:
            shutil.rmtree(new, ignore_errors=True)
            raise

    def has(self, manifest: Manifest) -> bool:
        """Return whether a save is here."""
        return (self._folder(self.enter()) / manifest.name).is_dir()

    def trim(self, kept: int) -> None:
        """Remove all that is older than the newest complete saves of this job, of which `kept` stay."""
        number = self.enter()
        found = [*self._of(number, self._job)]
        newest = _newest(found)[:kept]
        if len(newest) < kept:
            return
        for earlier in fence.jobs(self.root).values():
            if earlier < number:
                self._clear(self._folder(earlier), lambda _: True)
        self._clear(self._folder(number), lambda id_: is_surplus(id_, newest, [each.manifest for each in found]))

    def spare(self) -> list[str]:
        """Let all complete saves stay for good: a round has begun without them. Return their folders."""
        found = [each for each in self.stored() if not each.spared]
        for each in found:
            (each.folder / _SPARED).touch()
        return [str(each.folder.relative_to(self.root)) for each in found]

    def _of(self, number: int, job: str) -> Iterator[StoredSave]:
        """Yield the saves of a job of which no file is missing."""
        folder = self._folder(number)
        names = sorted(os.listdir(folder))[:_MOST_FOLDERS] if folder.is_dir() else []
        for name in names:
            if name.startswith("."):
                continue
            with suppress(FileNotFoundError, NotADirectoryError, ManifestError):
                with (folder / name / _LIST).open("rb") as file:
                    manifest = Manifest.from_json(file.read(MOST_BYTES + 1))
                found = StoredSave(folder / name, manifest, (folder / name / _SPARED).exists())
                if manifest.job == job and manifest.name == name and _has_all(found):
                    yield found

    def _folder(self, number: int) -> Path:
        return self.root / f"job-{number}"

    def _fill(self, new: Path, manifest: Manifest, read: Read, step: Callable[[int], None]) -> None:
        folders = {new, new / _FILES}
        (new / _FILES).mkdir()
        for place, file in enumerate(manifest.files):
            step(0)
            target = new / _FILES / file.path
            if target.parent not in folders:
                make_parent(new / _FILES, file.path)
                folders.add(target.parent)
            if file.link:
                os.symlink(file.link, target)
            else:
                _write(target, file, partial(read, place), step)
        step(0)
        _write_text(new / _LIST, manifest.to_json())
        step(0)
        for folder in folders:
            _sync(folder)

    def _clear(self, folder: Path, is_old: Callable[[SaveId], bool]) -> None:
        """Remove the old saves of a job, and what is left of copies of such saves; spared ones stay."""
        for path in folder.iterdir() if folder.is_dir() else ():
            name = path.name if not path.name.startswith(_NEW) else path.name.removeprefix(_NEW).rpartition("-")[0]
            id_ = id_of(name)
            if path.name.startswith(_OLD) or (id_ is not None and is_old(id_) and not (path / _SPARED).exists()):
                _remove(path)


def _remove(folder: Path) -> None:
    """Remove a save; first its name, so that no half of it is found."""
    old = folder.with_name(f"{_OLD}{os.urandom(8).hex()}")
    with suppress(OSError):
        folder.rename(old)
    shutil.rmtree(old, ignore_errors=True)


def offered(stored: Sequence[StoredSave]) -> tuple[HeldSave, ...]:
    """Return one part of each complete save, the newest first."""
    held = [each.manifest.held() for each in stored]
    first = [
        max(
            (save for save in held if choice.includes(save) and save.id.owner == choice.owners[0]),
            key=lambda save: save.id.number,
        )
        for choice in _newest(stored)
    ]
    return tuple(first[:_MOST_LISTED])


def incomplete(stored: Sequence[StoredSave]) -> tuple[Parts, ...]:
    """Return the saves of which only some parts are there, the newest first."""
    whole, found = _newest(stored), dict[tuple[RoundId, int, str], dict[int, int]]()
    for save in (each.manifest.held() for each in stored):
        owner, number = save.id.owner, save.id.number
        if owner < save.writers > 1 and save.label and not any(choice.includes(save) for choice in whole):
            numbers = found.setdefault((save.id.round, save.writers, save.label), {})
            numbers[owner] = max(number, numbers.get(owner, 0))
    ordered = sorted(found.items(), key=lambda item: (item[0][0], max(item[1].values())), reverse=True)
    return tuple(
        Parts(round_, numbers.get(0, 0), writers, label, sum(1 << owner for owner in numbers))
        for (round_, writers, label), numbers in ordered[:_MOST_INCOMPLETE]
        if writers <= MAX_MEMBERS
    )


def part(stored: Sequence[StoredSave], choice: Choice, owner: int) -> StoredSave | None:
    """Return the newest part of a chosen save that this owner wrote."""
    found = [each for each in stored if choice.includes(each.manifest.held()) and each.manifest.id.owner == owner]
    return max(found, key=lambda each: each.manifest.id.number, default=None)


def is_surplus(id_: SaveId, newest: Sequence[Choice], manifests: Sequence[Manifest]) -> bool:
    """Return whether a save is older than these complete saves. Of another rank's in the same round it is unknown."""
    oldest = newest[-1]
    if id_.round != oldest.round:
        return id_.round < oldest.round
    kept = [each.id for each in manifests if any(choice.includes(each.held()) for choice in newest)]
    same = [each.number for each in kept if each.owner == id_.owner and each.round == id_.round]
    return bool(same) and id_.number < min(same)


def copy_out(stored: StoredSave, place: int, target: Path, step: Callable[[int], None]) -> None:
    """Copy a file of a save from the directory. Raises SourceError if its content is not what the manifest lists."""
    file, checksum, offset = stored.manifest.files[place], Checksum(), 0
    with stored.file(place).open("rb") as source, target.open("wb") as out:
        while offset < file.size:
            data = source.read(min(CHUNK, file.size - offset))
            if not data:
                break
            checksum.update(data)
            out.write(data)
            offset += len(data)
            step(len(data))
    if offset != file.size or checksum.text() != file.checksum:
        raise SourceError(f"{stored.file(place)} is not what was saved")
    os.utime(target, ns=(file.mtime_ns, file.mtime_ns))


def _newest(stored: Sequence[StoredSave]) -> list[Choice]:
    """Return the complete saves, the newest first."""
    return sorted(complete(each.manifest.held() for each in stored), key=lambda choice: choice.age, reverse=True)


def _adopted(stored: StoredSave, job: str, number: int) -> StoredSave:
    """Return another job's save as one of this job: of a term before the first one, in the order of the jobs."""
    id_ = stored.manifest.id
    digest = int.from_bytes(sha256(str(id_.round).encode()).digest()[:4])
    round_ = RoundId(0, number, digest & _DIGITS)
    manifest = replace(stored.manifest, job=job, id=SaveId(round_, id_.owner, id_.number))
    return replace(stored, manifest=manifest)


def _has_all(stored: StoredSave) -> bool:
    """Return whether all files are there with their sizes; restoring compares the checksums."""
    for place, file in enumerate(stored.manifest.files):
        try:
            found = os.lstat(stored.file(place))
        except (FileNotFoundError, NotADirectoryError):
            return False
        if not file.link and found.st_size != file.size:
            return False
    return True


def _write(target: Path, file: HeldFile, read: Callable[[int], bytes], step: Callable[[int], None]) -> None:
    """Write a file piece by piece, each of them down to the storage: a client's memory hides how slow that is."""
    checksum, offset = Checksum(), 0
    with target.open("wb") as out:
        while offset < file.size:
            data = read(offset)[: file.size - offset]
            if not data:
                raise SourceError(f"{file.path} is shorter than it was")
            checksum.update(data)
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
            offset += len(data)
            step(len(data))
    if checksum.text() != file.checksum:
        raise SourceError(f"{file.path} has changed")
    os.utime(target, ns=(file.mtime_ns, file.mtime_ns))


def _write_text(path: Path, text: str) -> None:
    with path.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def _rename(new: Path, final: Path) -> None:
    """Give a folder its name. Raises FileExistsError if another member has brought the same save."""
    try:
        new.rename(final)
    except OSError:
        if not final.exists():
            raise
        shutil.rmtree(new, ignore_errors=True)
        raise FileExistsError(str(final)) from None
    _sync(final.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
