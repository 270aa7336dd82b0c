"""What the names of files in a checkpoint directory show: which belong together, and which are not checkpoints. Pure.

A unit is what a script saves at once: a file, the files of all ranks under names that differ in the rank alone, or a
folder with a step in its name.
"""

import re
from collections.abc import Collection, Iterable

from pytorchjob_agent.contract.checkpoint_rules import read_marker

OWN_FOLDER = ".pytorchjob"
"""The agent's own folder in the checkpoint directory."""
DCP_INDEX = ".metadata"
"""`torch.distributed.checkpoint` writes it last, at its coordinator rank."""
_DCP_SUFFIX = ".distcp"
_TEMPORARY = re.compile(r"(^[.~])|(\.(tmp|temp|part|partial|incomplete|swp)([.\-_]?\w*)?$)|(^(tmp|temp)[-_.])", re.I)
_MARKER = re.compile(r"\.(complete|completed|committed|done|finished|ready|success|whole)", re.I)
"""Scripts write such a file last, and load nothing without it."""
_LOG = re.compile(r"(^events\.out\.tfevents)|(\.(log|out|err)$)", re.I)
_TABLE = re.compile(r"\.(csv|tsv|jsonl)$", re.I)
_STEP_FOLDER = re.compile(r"(^\d+$)|((checkpoint|ckpt|step|iter|iteration|epochs?)[-_=]?\d+)", re.I)
_RANK = re.compile(r"(?P<before>(?<![a-z])rank[-_=]?|rng_state_|random_states_|^__)(?P<rank>\d+)(?=[^0-9]|$)", re.I)
_HUGGING_FACE, _HUGGING_FACE_LAST = frozenset({"optimizer.pt", "scheduler.pt"}), "trainer_state.json"
_TRAINER_FOLDER = re.compile(r"checkpoint-\d+")
"""Hugging Face's Trainer saves below it. Other scripts have files of the same names."""


def is_temporary(path: str) -> bool:
    """Return whether a script will rename this file, or the folder that it is in."""
    return any(
        part not in ("", DCP_INDEX) and _TEMPORARY.search(part) is not None and _MARKER.fullmatch(part) is None
        for part in path.split("/")
    )


def is_log(path: str) -> bool:
    """Return whether this file grows all the time and is no checkpoint."""
    return _LOG.search(path.rpartition("/")[2]) is not None


def is_table(path: str) -> bool:
    """Return whether this file is a table by its name. It may be part of a save, but no script trains on from it alone.

    That a script keeps a file open shows only after a while.
    """
    return _TABLE.search(path) is not None


def rank_of(path: str, world: int) -> int | None:
    """Return the rank, of `world`, in the name of a file or of a folder that it is in; None without one."""
    found = [int(match["rank"]) for part in path.split("/") for match in _RANK.finditer(part)]
    return next((rank for rank in reversed(found) if rank < world), None)


def is_own(path: str) -> bool:
    """Return whether a file is named for the rank that wrote it, so that no other rank loads it.

    Ranks load each other's files of `torch.distributed.checkpoint`.
    """
    return not path.endswith(_DCP_SUFFIX) and any(_RANK.search(part) for part in path.split("/"))


def unit_of(path: str) -> str:
    """Return the name of the unit that a file belongs to; equal for the files of all ranks."""
    parts = path.split("/")
    for depth, part in enumerate(parts[:-1], 1):
        if _STEP_FOLDER.search(part) is not None:
            return _without_rank("/".join(parts[:depth]))
    return _without_rank(path)


def _without_rank(path: str) -> str:
    return "/".join(_RANK.sub(r"\g<before>*", part) for part in path.split("/"))


def numbers(unit: str) -> tuple[int, ...]:
    """Return the numbers in a name, for the order of saves of one kind."""
    return tuple(int(digits[:18]) for digits in re.findall(r"\d+", unit))


def have_a_number_in_common(unit: str, other: str) -> bool:
    """Return whether two units of one kind have the same number at one place, like shards of one step."""
    return any(own == others for own, others in zip(numbers(unit), numbers(other), strict=True))


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
    trainer = _TRAINER_FOLDER.fullmatch(unit.rpartition("/")[2]) is not None
    return without_index or (trainer and any(path.rpartition("/")[2] in _HUGGING_FACE for path in paths))


def _dcp_folders(paths: Iterable[str]) -> set[str]:
    return {path.rpartition("/")[0] for path in paths if path.endswith(_DCP_SUFFIX)}
