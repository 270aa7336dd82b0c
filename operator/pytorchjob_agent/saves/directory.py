"""Reads the checkpoint directory: its files, and which of them a worker has open for writing."""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pytorchjob_agent.contract.checkpoint_rules import FENCE_FOLDER
from pytorchjob_agent.exchange.file_list import link_stays_inside
from pytorchjob_agent.saves import naming
from pytorchjob_agent.saves.recognition import SeenFile

MOST_FILES = 20_000


class DirectoryError(OSError):
    """The directory cannot be watched; the text names the reason."""


def read(root: Path, writing: Iterable[tuple[int, int]] = ()) -> list[SeenFile]:
    """Return the files below the directory. Links that leave it are left out. Raises DirectoryError.

    `writing`: device and inode of the files that are open for writing.
    """
    opened = set(writing)
    try:
        return [_seen(root, entry, opened) for entry in _entries(root) if _is_ours(root, entry)]
    except FileNotFoundError:
        return [] if not root.exists() else read(root, opened)
    except OSError as error:
        raise DirectoryError(f"{root} cannot be read: {error}") from error


def still(before: Iterable[SeenFile], now: Iterable[SeenFile], written: Collection[str]) -> list[SeenFile]:
    """Return the files of now, and mark as being written what has changed since before, or was `written` meanwhile.

    A worker may open a file, or be killed, between the search for open files and the two readings.
    """
    known = {file.path: file.identity for file in before}
    return [
        replace(
            file, writing=file.writing or known.get(file.path, file.identity) != file.identity or file.path in written
        )
        for file in now
    ]


def _entries(root: Path) -> Iterator[os.DirEntry[str]]:
    count, folders = 0, [str(root)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                if count > MOST_FILES:
                    raise DirectoryError(f"{root} has more than {MOST_FILES} files")
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in (naming.OWN_FOLDER, FENCE_FOLDER):
                        folders.append(entry.path)
                else:
                    yield entry


def _is_ours(root: Path, entry: os.DirEntry[str]) -> bool:
    if entry.is_file(follow_symlinks=False):
        return True
    return entry.is_symlink() and link_stays_inside(_path(root, entry), _target(root, entry))


def _target(root: Path, entry: os.DirEntry[str]) -> str:
    """Return the target of a link; of an absolute one below the directory the relative path, which other pods share."""
    target = os.readlink(entry.path)
    if not target.startswith(f"{root}/"):
        return target
    return os.path.relpath(target, os.path.dirname(entry.path))


def _seen(root: Path, entry: os.DirEntry[str], opened: set[tuple[int, int]]) -> SeenFile:
    found, path = entry.stat(follow_symlinks=False), _path(root, entry)
    if entry.is_symlink():
        return SeenFile(path, 0, found.st_mtime_ns, found.st_ino, link=_target(root, entry))
    writing = (found.st_dev, found.st_ino) in opened
    return SeenFile(path, found.st_size, found.st_mtime_ns, found.st_ino, writing)


def _path(root: Path, entry: os.DirEntry[str]) -> str:
    return os.path.relpath(entry.path, root)


def used(root: Path, without: Collection[Path] = ()) -> int:
    """Return the bytes of all files below the directory, each file once whatever its number of names.

    Folders of `without` do not count.
    """
    sizes: dict[int, int] = {}
    left_out = {str(folder) for folder in without}
    for folder, _, names in os.walk(root):
        if folder in left_out:
            continue
        for name in names:
            with suppress(OSError):
                found = os.lstat(os.path.join(folder, name))
                sizes[found.st_ino] = found.st_size
    return sum(sizes.values())
