"""What the names of files in a checkpoint directory show: which belong together, and which are not checkpoints. Pure.

A unit is what a script saves at once: a file, the files of all ranks under names that differ in the rank alone, or a
folder with a step in its name.
"""

import re
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from pytorchjob_agent.contract.checkpoint_rules import read_marker

OWN_FOLDER = ".pytorchjob"
"""The agent's own folder in the checkpoint directory."""
DCP_INDEX = ".metadata"
"""`torch.distributed.checkpoint` writes it last, at its coordinator rank."""
_DCP_SUFFIX = ".distcp"
_TEMPORARY = re.compile(r"(^[.~])|(\.(tmp|temp|part|partial|incomplete|swp)([.\-_]?\w*)?$)|(^(tmp|temp)[-_.])", re.I)
_LOG = re.compile(r"(^events\.out\.tfevents)|(\.(log|out|err)$)", re.I)
_STEP_FOLDER = re.compile(r"(^\d+$)|((checkpoint|ckpt|step|iter|iteration|epochs?)[-_=]?\d+)", re.I)
_RANK = re.compile(r"(?P<before>rank[-_=]?|rng_state_|^__)(?P<rank>\d+)(?=[^0-9]|$)", re.I)
_HUGGING_FACE, _HUGGING_FACE_LAST = frozenset({"optimizer.pt", "scheduler.pt"}), "trainer_state.json"
_NEWEST = 2
"""Saves of one kind that are kept: a script may keep many, each with another step in its name."""
T = TypeVar("T")


def is_temporary(path: str) -> bool:
    """Return whether a script will rename this file, or the folder that it is in."""
    return any(part not in ("", DCP_INDEX) and _TEMPORARY.search(part) is not None for part in path.split("/"))


def is_log(path: str) -> bool:
    """Return whether this file grows all the time and is no checkpoint."""
    return _LOG.search(path.rpartition("/")[2]) is not None


def rank_of(path: str) -> int | None:
    """Return the rank in a file's name; None without one."""
    found = _RANK.search(path.rpartition("/")[2])
    return None if found is None else int(found["rank"])


def unit_of(path: str) -> str:
    """Return the name of the unit that a file belongs to; equal for the files of all ranks."""
    parts = path.split("/")
    for depth, part in enumerate(parts[:-1], 1):
        if _STEP_FOLDER.search(part) is not None:
            return "/".join(parts[:depth])
    return "/".join((*parts[:-1], _RANK.sub(r"\g<before>*", parts[-1])))


def numbers(unit: str) -> tuple[int, ...]:
    """Return the numbers in a name, for the order of saves of one kind."""
    return tuple(int(digits[:18]) for digits in re.findall(r"\d+", unit))


def kind(unit: str) -> str:
    """Return the name without its numbers: equal for the saves of a script that counts them."""
    return re.sub(r"\d+", "#", unit)


def has_step(unit: str) -> bool:
    """Return whether the last part of the name has a number, so that later saves of this kind have other names."""
    return bool(numbers(unit.rpartition("/")[2]))


def is_committed(unit: str, paths: Collection[str]) -> bool:
    """Return whether a unit has the file that its library writes last.

    A folder may have several of DCP's below it: then no index of DCP is the last file.
    """
    found = {path.rpartition("/")[2] for path in paths}
    by_hugging_face = bool(found & _HUGGING_FACE) or bool(_dcp_folders(paths))
    return f"{unit}/{DCP_INDEX}" in paths or (_HUGGING_FACE_LAST in found and by_hugging_face)


def is_marked(names: Iterable[str]) -> bool:
    """Return whether ranks have marked their parts of a checkpoint as whole (`checkpoint/storage`)."""
    return any(read_marker(name.rpartition("/")[2]) is not None for name in names)


def has_marked(names: Iterable[str]) -> bool:
    """Return whether all files are there that the markers count. They are missing where a copy was cut."""
    found = [name.rpartition("/")[2] for name in names]
    marks = [mark for name in found if (mark := read_marker(name)) is not None]
    written = [name for name in found if name.endswith(_DCP_SUFFIX)]
    return all(count == sum(name.startswith(f"__{rank}_") for name in written) for rank, count in marks)


def lacks_commit(unit: str, paths: Collection[str]) -> bool:
    """Return whether a library has still to write a last file to this unit, at rank 0."""
    if is_committed(unit, paths):
        return False
    without_index = any(f"{folder}/{DCP_INDEX}" not in paths for folder in _dcp_folders(paths))
    return without_index or any(path.rpartition("/")[2] in _HUGGING_FACE for path in paths)


def _dcp_folders(paths: Iterable[str]) -> set[str]:
    return {path.rpartition("/")[0] for path in paths if path.endswith(_DCP_SUFFIX)}


def newest(units: Collection[T], unit: Callable[[T], str], changed: Callable[[T], int]) -> list[T]:
    """Return the two newest of each kind, by the numbers in their names and by their time of change."""
    kinds: dict[str, list[T]] = {}
    for each in units:
        kinds.setdefault(kind(unit(each)), []).append(each)
    kept: list[T] = []
    for found in kinds.values():
        by_name = sorted(found, key=lambda each: numbers(unit(each)))[-_NEWEST:]
        by_time = sorted(found, key=changed)[-_NEWEST:]
        kept += [each for each in found if each in by_name or each in by_time]
    return kept


def is_older(unit: str, others: Iterable[str]) -> bool:
    """Return whether all of the others of its kind have higher numbers, and there are some."""
    same = [numbers(other) for other in others if kind(other) == kind(unit)]
    return bool(same) and numbers(unit) < min(same)
