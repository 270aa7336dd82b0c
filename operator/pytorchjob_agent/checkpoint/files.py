"""Saves and loads that a training script calls: `save(path, write)` and `load(path, read)`."""

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pytorchjob_agent.checkpoint.fence import (
    FOLDER,
    FencedError,
    FencedWriter,
    SaveFence,
    is_guarded,
    remove,
    save_into,
    sync,
)

T = TypeVar("T")
AnyPath = str | os.PathLike[str]


def save(path: AnyPath, write: Callable[[Path], object]) -> None:
    """Save to this path by `write(new_path)`, which writes a file or a folder there. Readers see all of it or nothing.

    Raises FencedError if a later round of the job has loaded or saved in the same directory. Outside of a round it
    saves in the same way, and raises FencedError if a job guards the directory. Raises OSError.
    """
    final = Path(path)
    fence = fence_of(final)
    new = f"{final.name}.{uuid.uuid4().hex}"
    if fence is None:
        written = final.with_name(f".{new}")
        _write(written, write)
        save_into(written, final)
        return
    written = fence.take_over(loads=False) / new
    try:
        _write(written, write)
    except Exception:
        fence.take_over(loads=False)  # raises the reason, if it is that this round was superseded meanwhile
        raise
    fence.commit(written, final)


def load(path: AnyPath, read: Callable[[Path], T], default: T | None = None) -> T | None:
    """Load by `read(path)`; the default if there is nothing at this path. From then on no earlier round can save there.

    Call it at the start, also when there is nothing to load: before the first step no earlier group can save any more.
    Raises FencedError if a later round has taken over the directory. Outside of a round it only reads. Raises OSError.
    """
    final = Path(path)
    take_over(final.parent)
    return read(final) if final.exists() else default


def take_over(directory: AnyPath) -> None:
    """Let no earlier round save in this directory from now on; `load` and GuardedReader do it too.

    Call it before you choose what to load: an earlier round might save a newer checkpoint after that choice.
    Raises FencedError. Does nothing outside of a round.
    """
    writer = FencedWriter.from_env(os.environ)
    if writer is not None:
        Path(directory).mkdir(parents=True, exist_ok=True)
        SaveFence(Path(directory), writer).take_over(loads=True)


def fence_of(final: Path) -> SaveFence | None:
    """Return the fence of a path's directory for this process; None outside of a round. Raises FencedError."""
    final.parent.mkdir(parents=True, exist_ok=True)
    writer = FencedWriter.from_env(os.environ)
    if writer is not None:
        return SaveFence(final.parent, writer)
    if is_guarded(final.parent):
        raise FencedError(
            f"{final.parent} is guarded by a job, and this process is not in a round of that job:"
            f" remove {final.parent / FOLDER} if no job uses the directory any more"
        )
    return None


def _write(new: Path, write: Callable[[Path], object]) -> None:
    """Write and bring to the disk. What a failed attempt has written is removed: the disk may be full of it."""
    try:
        write(new)
        sync(new)
    except BaseException:
        remove(new)
        raise
