"""Brings a chosen save in place before the workers start, and moves aside what the script must not load instead."""

import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from pytorchjob_agent.saves import directory, naming
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.manifest import Manifest, union
from pytorchjob_agent.saves.recognition import SeenFile
from pytorchjob_agent.saves.wire import copy_file


def place(held: HeldSaves, parts: Sequence[Manifest]) -> tuple[list[SeenFile], list[str]]:
    """Make the directory have these parts of a save; return its files as they are now, and the units moved aside.

    Raises OSError.
    """
    wanted = union(parts)
    present = directory.read(held.root)
    same = {file.path for file in present if file.path in wanted and _is_same(held, file, *wanted[file.path])}
    aside = _move_aside(held, [file for file in present if file.path not in same], wanted)
    for path, (manifest, position) in wanted.items():
        if path not in same:
            _bring(held, manifest, position)
    return [file for file in directory.read(held.root) if file.path in wanted], aside


def _is_same(held: HeldSaves, present: SeenFile, manifest: Manifest, position: int) -> bool:
    """Return whether a file is the held one, under another name."""
    wanted = manifest.files[position]
    if present.link or wanted.link:
        return present.link == wanted.link
    return present.inode == held.path(manifest, position).stat().st_ino


def _move_aside(held: HeldSaves, others: Sequence[SeenFile], wanted: Collection[str]) -> list[str]:
    """Move away what is not part of the save, but for older saves of the same kind and logs."""
    chosen = {naming.unit_of(path) for path in wanted}
    moved, folder = [], held.aside()
    for number, file in enumerate(others):
        unit = naming.unit_of(file.path)
        if naming.is_log(file.path) or naming.is_temporary(file.path):
            continue
        if unit in chosen or not naming.is_older(unit, chosen):
            os.rename(held.root / file.path, folder / str(number))
            moved.append(unit)
            _remove_empty((held.root / file.path).parent, held.root)
    return sorted(set(moved))


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove folders that the move has left empty: a script may choose by the name of a folder."""
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _bring(held: HeldSaves, manifest: Manifest, position: int) -> None:
    file = manifest.files[position]
    target = held.root / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.parent.resolve().is_relative_to(held.root.resolve()):
        raise OSError(f"{file.path} leads out of the checkpoint directory")
    folder = held.new_folder()
    try:
        if file.link:
            os.symlink(file.link, folder / "file")
        else:
            copy_file(held.path(manifest, position), folder / "file", file)
        os.replace(folder / "file", target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
