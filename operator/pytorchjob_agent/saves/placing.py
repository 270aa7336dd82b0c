"""Brings a chosen save in place before the workers start, and moves aside what the script must not load instead."""

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from pytorchjob_agent.exchange.files import make_parent
from pytorchjob_agent.exchange.wire import copy_file
from pytorchjob_agent.saves import directory, naming
from pytorchjob_agent.saves.held import FullError, HeldSaves
from pytorchjob_agent.saves.held_saves import SaveId
from pytorchjob_agent.saves.manifest import Manifest, union
from pytorchjob_agent.saves.recognition import SeenFile


def place(
    held: HeldSaves,
    parts: Sequence[Manifest],
    rests: Sequence[SeenFile],
    open_: Collection[str] = (),
    only_replaces: Callable[[str], bool] = lambda _: False,
) -> tuple[list[SeenFile], list[str]]:
    """Make the directory have these parts of a save; return its files as they are now, and the units moved aside.

    `rests` are the files that the script may take for a save: those that the save lacks are newer, or not whole. Of
    those that the workers kept open (`open_`) only files of the save's kinds are: others are tables.
    `only_replaces`: whether the script never overwrites the file with this path. Raises OSError.
    """
    wanted = union(parts)
    same = {file.path for file in rests if file.path in wanted and _is_same(held, file, *wanted[file.path])}
    kinds = {naming.kind(naming.unit_of(path)) for path in wanted}
    tables = {path for path in open_ if naming.kind(naming.unit_of(path)) not in kinds}
    aside = set_aside(held, (file for file in rests if file.path not in same | tables))
    needed = [part.id for part in parts]
    for path, (manifest, position) in wanted.items():
        if path not in same:
            _bring(held, manifest, position, needed, copies=not only_replaces(path))
    return [file for file in directory.read(held.root) if file.path in wanted], aside


def set_aside(held: HeldSaves, files: Iterable[SeenFile]) -> list[str]:
    """Move files into the agent's own folder, but no tables; return the names of their units. Raises OSError."""
    moved, folder = set[str](), None
    for file in files:
        if naming.is_table(file.path):
            continue
        folder = held.aside() if folder is None else folder
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(held.root / file.path, target)
        moved.add(naming.unit_of(file.path))
        _remove_empty((held.root / file.path).parent, held.root)
    return sorted(moved)


def _is_same(held: HeldSaves, present: SeenFile, manifest: Manifest, position: int) -> bool:
    """Return whether a file is what was held, or the held one under another name."""
    wanted = manifest.files[position]
    if present.link or wanted.link:
        return present.link == wanted.link
    unchanged = (present.size, present.mtime_ns) == (wanted.size, wanted.mtime_ns)
    return unchanged or present.inode == held.path(manifest, position).stat().st_ino


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove folders that the move has left empty: a script may choose by the name of a folder."""
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _bring(held: HeldSaves, manifest: Manifest, position: int, needed: Sequence[SaveId], *, copies: bool) -> None:
    file = manifest.files[position]
    held.root.mkdir(exist_ok=True)  # the script may have removed it
    make_parent(held.root, file.path)
    try:
        receiving = held.receiving(file.size if copies else 0, keep=needed)
        _move(held, manifest, position, receiving, copies=copies)
    except FullError:
        _move(held, manifest, position, held.receiving(0), copies=False)


def _move(
    held: HeldSaves, manifest: Manifest, position: int, receiving: AbstractContextManager[Path], *, copies: bool
) -> None:
    file, source = manifest.files[position], held.path(manifest, position)
    with receiving as folder:
        if file.link:
            os.symlink(file.link, folder / "file")
        elif copies:
            shutil.copyfile(source, folder / "file")
            os.utime(folder / "file", ns=(file.mtime_ns, file.mtime_ns))
        else:
            copy_file(source, folder / "file", file)
        os.replace(folder / "file", held.root / file.path)
