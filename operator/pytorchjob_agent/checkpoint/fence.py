"""The fence beside the checkpoints of a directory: once a later round has taken it over, no earlier one can save there.

Each round of a job writes below a folder of its own in `.pytorchjob-fence/rounds`, and a save ends with a rename from
there to its final name. A later round takes over by removing the folders of all earlier rounds. So the file system
itself refuses the last rename of an earlier round, however late it arrives: no lock can expire, no clock is compared.
The folders are removed, not just renamed: a client of NFS may still write through the handle of a renamed folder.
Needed is a file system on which a rename is atomic, as POSIX demands.
"""

import errno
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytorchjob_agent.contract.checkpoint_rules import FENCE_FOLDER
from pytorchjob_agent.contract.coordinator_endpoint import JOB
from pytorchjob_agent.contract.environment import ROUND_ID

FOLDER = FENCE_FOLDER
_JOBS, _ROUNDS, _WORK, _REVOKED = "jobs", "rounds", "work", "revoked"
_DIGITS = 16
_KEPT = 32
"""How many revoked rounds stay, so that none of them can begin again."""
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
_REPLACED = ".replaced-"
_OPEN = ".nfs"
"""How NFS renames a removed file that a process of this machine has open. Then the machine knows of the removal."""
_ATTEMPTS, _PAUSE = 100, 0.1
"""How often a folder is removed into which another process still writes, and the pause between in seconds."""


class FencedError(RuntimeError):
    """This process may not save here: a later round of its job, or a later job, has taken over the directory."""


@dataclass(frozen=True, slots=True)
class FencedWriter:
    """The round of a job that this process works in."""

    job: str
    round: tuple[int, int, int]

    def __str__(self) -> str:
        """Return the round as logs show it."""
        return ".".join(map(str, self.round if self.round[2] else self.round[:2]))

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "FencedWriter | None":
        """Read what the agent wrote; None outside of a round. Raises ValueError."""
        job, text = env.get(JOB), env.get(ROUND_ID)
        if not job or not text:
            return None
        parts = text.split(".")
        if len(parts) not in (2, 3) or not all(part.isascii() and part.isdecimal() for part in parts):
            raise ValueError(f"{ROUND_ID}: {text[:80]!r} is not the id of a round: expected TERM.NUMBER[.ATTEMPT]")
        term, number, attempt = (*map(int, parts), 0)[:3]
        return cls(job, (term, number, attempt))


class SaveFence:
    """The fence of one directory, as one writer sees it. Every method may raise OSError."""

    def __init__(self, directory: Path, writer: FencedWriter) -> None:
        """Touch nothing yet."""
        self._directory, self._writer = directory, writer
        self._folder = directory / FOLDER

    def take_over(self, *, loads: bool) -> Path:
        """Revoke all earlier rounds, and return the folder in which this round writes. Raises FencedError.

        A job that comes to a directory of another job takes it over when it `loads`, and never by a save.
        """
        job = self._job_number(loads)
        name = "-".join(f"{part:0{_DIGITS}}" for part in (job, *self._writer.round))
        own = self._folder / _ROUNDS / name
        _create(own, _WORK)
        # Only now: whichever of two rounds comes second sees the other.
        names = sorted(path.name for path in own.parent.iterdir() if not path.name.startswith("."))
        if names[-1] > name:
            raise self._fenced(f"round {_shown(names[-1])} of {_whose(names[-1], job)} has taken it over")
        for earlier in names[:-1]:
            _revoke(own.parent / earlier, self._directory)
        for old in names[:-_KEPT]:
            shutil.rmtree(own.parent / old, ignore_errors=True)
        if not (own / _WORK).is_dir():
            raise self._fenced("a later round has taken it over")
        return own / _WORK

    def commit(self, written: Path, final: Path) -> None:
        """Give what was written its final name, in one step. Raises FencedError if a later round has taken over."""
        try:
            _replace(written, final)
        except OSError:
            self.take_over(loads=False)  # raises the reason, if it is that this round was superseded
            raise
        _sync_path(final.parent)

    def _job_number(self, loads: bool) -> int:
        """Return the number of this writer's job among the jobs that have used the directory."""
        (self._folder / _JOBS).mkdir(parents=True, exist_ok=True)
        while True:
            known = jobs(self._directory)
            number, last = known.get(self._writer.job), max(known.values(), default=0)
            if number == last and number:
                return number
            later = next((job for job, each in known.items() if each == last), "")
            if number is not None:
                raise self._fenced(f"job {later} has taken it over")
            if known and not loads:
                raise self._fenced(f"it belongs to job {later}; load from it first to take it over")
            _create(self._folder / _JOBS / f"{last + 1:0{_DIGITS}}", self._writer.job)

    def _fenced(self, why: str) -> FencedError:
        writer = self._writer
        name = f"round {writer} of job {writer.job}" if any(writer.round) else f"job {writer.job}"
        return FencedError(f"{name} may not use {self._directory} any more: {why}")


def jobs(directory: Path) -> dict[str, int]:
    """Return the jobs that have used a directory. A later one has a greater number. Raises OSError."""
    with suppress(FileNotFoundError):
        folders = [path for path in (directory / FOLDER / _JOBS).iterdir() if path.name.isdecimal()]
        return {next(path.iterdir()).name: int(path.name) for path in folders}
    return {}


def enter(directory: Path, job: str) -> int:
    """Take over a directory for a job outside of its rounds; return its number. Raises FencedError and OSError."""
    return SaveFence(directory, FencedWriter(job, (0, 0, 0)))._job_number(loads=True)


def is_guarded(directory: Path) -> bool:
    """Return whether a job guards this directory."""
    return (directory / FOLDER / _JOBS).is_dir()


def _create(folder: Path, content: str) -> None:
    """Create a folder with one entry in it, in one step, unless it exists: a folder that is not empty is final."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = folder.parent / f".new-{uuid.uuid4().hex}"
    (new / content).mkdir(parents=True)
    try:
        new.rename(folder)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        if error.errno not in _TAKEN:
            raise


def _revoke(round_: Path, directory: Path) -> None:
    """Remove all that a round has not committed, and the folder in which it writes; returns once it is gone."""
    if [path.name for path in _entries(round_)] == [_REVOKED]:
        return
    with suppress(FileExistsError, FileNotFoundError):
        (round_ / _REVOKED).mkdir()  # before the rest goes: an empty folder could be created again
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            (round_ / _WORK).rename(round_ / uuid.uuid4().hex)
        left = [path for path in _entries(round_) if path.name != _REVOKED]
        if all(_is_open(path) for path in left):
            return
        for path in left:
            _restore(path, directory)
            shutil.rmtree(path, ignore_errors=True)
        if [path for path in _entries(round_) if path.name != _REVOKED and not _is_open(path)]:
            time.sleep(_PAUSE)
    raise OSError(f"{round_} cannot be removed: check the rights in this folder")


def _entries(folder: Path) -> list[Path]:
    with suppress(FileNotFoundError):
        return list(folder.iterdir())
    return []


def _is_open(folder: Path) -> bool:
    """Return whether nothing is left of a folder but files that a process of this machine has open."""
    found = _entries(folder)
    return bool(found) and all(path.name.startswith(_OPEN) for path in found)


def _replace(written: Path, final: Path) -> None:
    """Rename; a folder that has the final name is moved aside before, because a rename replaces empty ones only."""
    try:
        written.replace(final)
    except OSError as error:
        if error.errno not in (*_TAKEN, errno.EISDIR):
            raise
        aside = written.with_name(f"{final.name}{_REPLACED}{uuid.uuid4().hex}")
        final.rename(aside)
        written.replace(final)
        remove(aside)


def _restore(work: Path, directory: Path) -> None:
    """Put back what a process that ended between the two renames of `_replace` had moved aside."""
    for aside in _entries(work):
        name, found, _ = aside.name.rpartition(_REPLACED)
        if found and not (directory / name).exists():
            with suppress(OSError):  # another process has put it back, or the save was committed after all
                aside.rename(directory / name)


def save_into(new: Path, final: Path) -> None:
    """Give what was written its final name, without a fence."""
    _replace(new, final)
    _sync_path(final.parent)


def remove(path: Path) -> None:
    """Remove a file or a folder, as far as that is possible."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def sync(path: Path) -> None:
    """Bring a file, or all files below a folder, to the disk."""
    for each in (path, *path.rglob("*")) if path.is_dir() else (path,):
        _sync_path(each)


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _shown(name: str) -> str:
    """Return the round of a folder's name as logs show it."""
    return str(FencedWriter("", tuple(int(part) for part in name.split("-")[1:])))  # type: ignore[arg-type]


def _whose(name: str, job: int) -> str:
    return "this job" if int(name.split("-")[0]) == job else "a later job"
