"""The list of a held save's files with their checksums, as JSON. Pure: whatever a peer sends is checked here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self

from pytorchjob_agent.exchange.file_list import (
    LONGEST_PATH,
    HeldFile,
    ManifestError,
    are_apart,
    is_name,
    link_stays_inside,
)
from pytorchjob_agent.saves import naming
from pytorchjob_agent.saves.held_saves import LABEL_LIMIT, HeldSave, SaveId, round_of

MOST_FILES = 4096
_DIGITS, _MOST = 64, 2**53
_LATEST = 2**63
"""Above all times of change in nanoseconds that a file can have."""


Together = tuple[tuple[tuple[str, int], ...], ...]
"""Saves that the script writes: for each, the kinds of its units, and at least how many of each."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One save of one owner."""

    job: str
    """The job's uid: saves of another job are never offered."""
    id: SaveId
    files: tuple[HeldFile, ...]
    writers: int = 1
    label: str = ""
    together: Together = ()
    """What its writer knew by then: an agent that restores this save awaits the same."""

    @property
    def sizes(self) -> list[int]:
        """Bytes of each file."""
        return [file.size for file in self.files]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self.sizes)

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return f"{self.id.round}_{self.id.owner}_{self.id.number}"

    def held(self) -> HeldSave:
        """Return what this member lists for the others of a round."""
        own = self.writers > 1 and all(naming.is_own(file.path) for file in self.files)
        checksums = [
            file.checksum for file in self.files if self.writers == 1 and naming.unit_of(file.path) == self.label
        ]
        digest = sha256("".join(checksums).encode()).hexdigest()[:32] if checksums else ""
        return HeldSave(self.id, self.size, self.writers, self.label, digest, own)

    def to_json(self) -> str:
        """Return one line that `from_json` reads."""
        files = [[file.path, file.size, file.mtime_ns, file.checksum, file.link] for file in self.files]
        id_ = [str(self.id.round), self.id.owner, self.id.number]
        values = {"job": self.job, "id": id_, "writers": self.writers, "label": self.label, "files": files}
        return json.dumps(values | {"together": self.together})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a manifest. Raises ManifestError."""
        try:
            values = json.loads(text)
            round_, owner, number = values["id"]
            id_ = round_of(round_)
            files = tuple(_file(entry) for entry in _some(values["files"]))
            job, writers, label = values["job"], values["writers"], values["label"]
            together = tuple(map(_known, values.get("together", ())))  # those of earlier versions have none
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ManifestError(f"not a manifest: {str(error)[:120]}") from None
        texts = isinstance(job, str) and isinstance(label, str) and len(label) <= LABEL_LIMIT and is_name(label)
        counts = all(_is_count(count) for count in (owner, number, writers))
        if id_ is None or not texts or not counts or not are_apart([file.path for file in files]):
            raise ManifestError("not a manifest: a field is wrong, or a name occurs twice, or lies below another one")
        return cls(job, SaveId(id_, owner, number), files, writers, label, together)


def id_of(name: str) -> SaveId | None:
    """Return the save whose folder has this name; None for any other text."""
    text, *numbers = name.split("_")
    round_ = round_of(text)
    if round_ is None or len(numbers) != 2 or not all(part.isascii() and part.isdigit() for part in numbers):
        return None
    return SaveId(round_, *map(int, numbers))


def is_inside(path: str) -> bool:
    """Return whether a path with slashes stays below the directory, and out of the agent's own folder."""
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") for part in parts) and is_name(path)
    return plain and len(path) <= LONGEST_PATH and parts[0] != naming.OWN_FOLDER


def union(manifests: Sequence[Manifest]) -> Mapping[str, tuple[Manifest, int]]:
    """Return the files of several owners by path, each with its place; of equal names the lowest owner's counts."""
    found: dict[str, tuple[Manifest, int]] = {}
    for manifest in sorted(manifests, key=lambda manifest: manifest.id.owner):
        for place, file in enumerate(manifest.files):
            found.setdefault(file.path, (manifest, place))
    return found


def _some(entries: Any) -> Sequence[Any]:
    if not isinstance(entries, list) or not 0 < len(entries) <= MOST_FILES:
        raise ValueError(f"expected 1 to {MOST_FILES} files")
    return entries


def _known(save: Any) -> tuple[tuple[str, int], ...]:
    if not all(isinstance(kind, str) and _is_count(count) and count for kind, count in save):
        raise ValueError("files that are saved together have a wrong name or number")
    return tuple((kind, count) for kind, count in save)


def _file(entry: Any) -> HeldFile:
    path, size, mtime_ns, digest, link = entry
    if not (isinstance(path, str) and is_inside(path)):
        raise ValueError(f"{str(path)[:80]!r} leaves the directory")
    if not (isinstance(link, str) and (not link or link_stays_inside(path, link))):
        raise ValueError(f"{path[:80]!r} leads out of the directory")
    whole = isinstance(digest, str) and digest.isascii() and (bool(link) or len(digest) == _DIGITS)
    timed = type(mtime_ns) is int and abs(mtime_ns) < _LATEST
    if not whole or not _is_count(size) or not timed or (link and size):
        raise ValueError(f"{path[:80]!r} has a wrong size, time or checksum")
    return HeldFile(path, size, mtime_ns, digest, link)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST
