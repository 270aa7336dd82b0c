"""The checkpoints `step-N` of a directory: which are there, which one all ranks load, and the removal of old ones.

Ranks may have directories of their own, so that each sees a part of a checkpoint. All ranks compare what they see.
"""

import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytorchjob_agent.contract.checkpoint_rules import read_marker

METADATA = ".metadata"
"""The file of torch.distributed.checkpoint that lists all others."""
_STEP = re.compile(r"step-(\d{1,18})")
_PART = re.compile(r"__\d+_")
_OLD = ".old-"


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """What a rank sees of one checkpoint."""

    files: Mapping[str, int]
    """Names with their sizes."""
    needed: Mapping[str, int] | None
    """All files of the checkpoint with the sizes that they have at least. None: the list of files is elsewhere."""
    rounds: frozenset[str]
    """The rounds that have marked their parts."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The newest checkpoint of which no file is missing."""

    step: int
    sizes: Mapping[str, int]
    """Its files."""


def folder_of(directory: Path, step: int) -> Path:
    """Return where a step is saved."""
    return directory / f"step-{step}"


def find(directory: Path, needed: Callable[[Path], Mapping[str, int] | None]) -> dict[int, FoundCheckpoint]:
    """Return what is in a directory, by step; `needed` reads the list of a checkpoint's files. Raises OSError."""
    return {step: _found(folder, needed) for step, folder in _folders(directory)}


def choose(by_rank: Sequence[Mapping[int, FoundCheckpoint]]) -> Chosen | None:
    """Return the newest checkpoint that is whole, from what each rank sees; None without one. Pure.

    Parts that were written by different rounds are not of one save.
    """
    for step in sorted({step for found in by_rank for step in found}, reverse=True):
        parts = [found[step] for found in by_rank if step in found]
        sizes = {name: size for part in reversed(parts) for name, size in part.files.items()}
        lists = [part.needed for part in parts if part.needed is not None]
        same_round = len(frozenset[str]().union(*(part.rounds for part in parts))) <= 1
        if lists and same_round and all(sizes.get(name, -1) >= size for each in lists for name, size in each.items()):
            return Chosen(step, sizes)
    return None


def missing(chosen: Chosen, by_rank: Sequence[Mapping[int, FoundCheckpoint]]) -> dict[str, int]:
    """Return the files that some rank does not see, each with the first rank that has it; the list comes last. Pure."""
    seen = [found[chosen.step].files if chosen.step in found else {} for found in by_rank]
    names = sorted(chosen.sizes, key=lambda name: (name == METADATA, read_marker(name) is not None, name))
    lacking = [name for name in names if not all(name in files for files in seen)]
    return {name: next(rank for rank, files in enumerate(seen) if name in files) for name in lacking}


def unfinished(by_rank: Sequence[Mapping[int, FoundCheckpoint]]) -> set[int]:
    """Return the checkpoints whose last file no rank sees: their saves were cut. Pure."""
    seen = {step for found in by_rank for step in found}
    return seen - {step for found in by_rank for step, part in found.items() if METADATA in part.files}


def remove_old(directory: Path, newest: int, keep: int) -> None:
    """Remove all checkpoints before the newest ones up to a step. Raises OSError."""
    remove(directory, sorted(step for step, _ in _folders(directory) if step <= newest)[:-keep])


def remove(directory: Path, steps: Iterable[int]) -> None:
    """Remove checkpoints, and what a killed process has left of such; each disappears at once. Raises OSError."""
    for step in steps:
        folder = folder_of(directory, step)
        with suppress(FileNotFoundError):
            folder.rename(directory / f".{folder.name}{_OLD}{uuid.uuid4().hex}")
    for left in directory.glob(f".step-*{_OLD}*"):
        shutil.rmtree(left, ignore_errors=True)


def _folders(directory: Path) -> Iterator[tuple[int, Path]]:
    """Yield the folders with files of torch.distributed.checkpoint."""
    for folder in directory.iterdir():
        found = _STEP.fullmatch(folder.name)
        with suppress(FileNotFoundError, NotADirectoryError):
            if found and any(path.name == METADATA or _PART.match(path.name) for path in folder.iterdir()):
                yield int(found[1]), folder


def _found(folder: Path, needed: Callable[[Path], Mapping[str, int] | None]) -> FoundCheckpoint:
    files, rounds, listed = {}, set(), None
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            files[path.name] = path.stat().st_size
            if read_marker(path.name) is not None:
                rounds.add(path.read_text())
        if METADATA in files:
            listed = needed(folder)
    return FoundCheckpoint(files, listed, frozenset(rounds))
