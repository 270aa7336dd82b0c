"""The list of the files that a pod offers to a new one, as JSON. Pure: whatever a peer sends is checked here."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pytorchjob_agent.caches.settings import CUDA, FOLDERS, HUB
from pytorchjob_agent.exchange.file_list import are_apart, is_name, link_stays_inside
from pytorchjob_agent.exchange.wire import PeerRefusedError

MOST_FILES = 8192
MOST_BYTES = 4 * 2**30
"""Bytes of all files that a new pod fetches."""
_MOST_TEXT = 2**21
_LONGEST_PATH = 512
_CONTROL = 32


@dataclass(frozen=True, slots=True)
class CachedFile:
    """One file of a cache."""

    path: str
    """Below the folder of the caches, with slashes."""
    size: int
    mtime_ns: int
    link: str = ""
    """The target of a symbolic link, which stays in the same cache."""


def unit_of(path: str) -> str:
    """Return the folder that is of use only as a whole: CUDA's cache, a model of Hugging Face. Empty: a single file."""
    parts = path.split("/")
    if parts[0] == CUDA:
        return CUDA
    return "/".join(parts[:2]) if parts[0] == HUB else ""


def choose(files: Iterable[CachedFile]) -> list[CachedFile]:
    """Return what fits the limits: compiled code first, whole units only."""
    chosen: list[CachedFile] = []
    room = text = 0
    for group in _groups(files):
        size, length = sum(file.size for file in group), len(json.dumps([_entry(file) for file in group]))
        if len(chosen) + len(group) <= MOST_FILES and room + size <= MOST_BYTES and text + length <= _MOST_TEXT:
            chosen += group
            room, text = room + size, text + length
    return chosen


def _groups(files: Iterable[CachedFile]) -> list[list[CachedFile]]:
    """Return single files, the newest first, then units, the smallest first."""
    singles: list[CachedFile] = []
    units: dict[str, list[CachedFile]] = {}
    for file in files:
        unit = unit_of(file.path)
        (units.setdefault(unit, []) if unit else singles).append(file)
    newest = sorted(singles, key=lambda file: (-file.mtime_ns, file.path))
    return [[file] for file in newest] + sorted(units.values(), key=lambda unit: sum(file.size for file in unit))


def to_json(files: Sequence[CachedFile]) -> str:
    """Return what `from_json` reads."""
    return json.dumps([_entry(file) for file in files])


def from_json(text: Any) -> list[CachedFile]:
    """Read a peer's list. Raises PeerRefusedError."""
    try:
        entries = json.loads(text)
        if not isinstance(entries, list) or len(entries) > MOST_FILES:
            raise ValueError(f"expected at most {MOST_FILES} files")
        found = [_file(entry) for entry in entries]
    except (ValueError, TypeError, RecursionError) as error:
        raise PeerRefusedError(f"the peer sent no list of caches: {str(error)[:120]}") from None
    if sum(file.size for file in found) > MOST_BYTES or not are_apart([file.path for file in found]):
        raise PeerRefusedError("the peer offers more than the limit, or a name twice or below another one")
    return found


def _entry(file: CachedFile) -> list[Any]:
    return [file.path, file.size, file.mtime_ns, file.link]


def _file(entry: Any) -> CachedFile:
    path, size, mtime_ns, link = entry
    if not (isinstance(path, str) and is_cached(path)):
        raise ValueError(f"{str(path)[:80]!r} is not in a cache")
    if not (isinstance(link, str) and (not link or may_link(path, link))):
        raise ValueError(f"{path[:80]!r} leads out of its cache")
    if type(size) is not int or type(mtime_ns) is not int or not 0 <= size <= MOST_BYTES or not 0 <= mtime_ns < 2**63:
        raise ValueError(f"{path[:80]!r} has a wrong size or time")
    return CachedFile(path, 0 if link else size, mtime_ns, link)


def is_cached(path: str) -> bool:
    """Return whether a path names a file of one of the caches that may be copied: no temporary one, no lock."""
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") and min(map(ord, part)) >= _CONTROL for part in parts) and is_name(path)
    deep = len(parts) > (2 if parts[0] == HUB else 1)
    return plain and deep and len(path) <= _LONGEST_PATH and parts[0] in FOLDERS and not is_temporary(path)


def is_temporary(path: str) -> bool:
    """Return whether the name is that of a lock, or of a file that is being written."""
    parts = path.split("/")
    if parts[0] == HUB:  # the files of a model may have hidden names
        return parts[1].startswith(".") or path.endswith((".lock", ".incomplete"))
    passing = any(part.startswith((".", "tmp.")) or part.endswith((".tmp", ".lock")) for part in parts)
    return passing or "locks" in parts[1:-1]


def may_link(path: str, target: str) -> bool:
    """Return whether a link of this path to the target stays in its unit; only Hugging Face has such links."""
    unit = unit_of(path)
    return bool(unit) and link_stays_inside(path[len(unit) + 1 :], target)
