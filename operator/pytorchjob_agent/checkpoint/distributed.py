"""Checkpoints of torch.distributed.checkpoint by three lines of a script, and its writer and reader for other scripts.

    from pytorchjob_agent.checkpoint import distributed as checkpoint

    state = {"model": model, "optimizer": optimizer}
    step = checkpoint.load(state)        # of the newest checkpoint; 0 without one
    checkpoint.save(state, step)         # copies the state and returns; a thread writes
    checkpoint.wait()                    # at the end: the last checkpoint is whole

All ranks call them, in the same order. A save appears as `step-N` in the directory. The directory may be shared by all
ranks, or be each pod's own memory. The script may also use GuardedWriter and GuardedReader with torch's own functions.
"""

import os
import pickle
import uuid
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader

from pytorchjob_agent.checkpoint import sharing, states, steps
from pytorchjob_agent.checkpoint.fence import FencedError
from pytorchjob_agent.checkpoint.files import AnyPath, take_over
from pytorchjob_agent.checkpoint.staging import Staging
from pytorchjob_agent.checkpoint.storage import GuardedReader, GuardedWriter
from pytorchjob_agent.contract.checkpoint_rules import CHECKPOINT, CheckpointRules
from pytorchjob_agent.system.console import say

__all__ = ["FencedError", "GuardedReader", "GuardedWriter", "load", "save", "wait"]


class _Saver:
    """What this process has saved, and is saving."""

    def __init__(self) -> None:
        """Begin without a group."""
        self._world: Callable[[], Any] = lambda: None
        self._group: Callable[[], Any] = lambda: None
        """Weak: torch destroys its groups, and no thread of them may outlive that."""
        self._pending: Future[None] | None = None
        self._staging = Staging()
        self._newest: dict[Path, int] = {}
        """By directory, the step that the next one has to exceed."""

    def load(self, state: dict[str, Any], directory: Path) -> int:
        """See `load`."""
        group = self._ready("load")
        take_over(directory)
        by_rank = sharing.compare(steps.find(directory, _needed), group)
        chosen = steps.choose(by_rank)
        step = -1 if chosen is None else chosen.step
        for other in (other for other in by_rank[dist.get_rank()] if other > step):
            say(f"{steps.folder_of(directory, other)} is not loaded: files are missing, or cannot be read")
        steps.remove(directory, steps.unfinished(by_rank))
        self._newest[directory] = step
        if chosen is None:
            return 0
        folder = steps.folder_of(directory, step)
        sharing.fetch(folder, chosen, by_rank, group)
        values = states.values(state)
        state_dict_loader.load(values, checkpoint_id=folder, storage_reader=GuardedReader(folder), process_group=group)
        states.put(state, values)
        return step

    def save(self, state: Mapping[str, Any], step: int, directory: Path, keep: int) -> None:
        """See `save`."""
        group = self._ready("save")
        self.finish()
        if directory not in self._newest:
            chosen = steps.choose(sharing.compare(steps.find(directory, _needed), group))
            self._newest[directory] = -1 if chosen is None else chosen.step
        if step <= self._newest[directory]:
            raise ValueError(_no_progress(step, self._newest[directory], directory))
        folder = steps.folder_of(directory, step)
        written: Any = state_dict_saver.async_save(
            states.values(state),
            checkpoint_id=folder,
            storage_writer=GuardedWriter(folder),
            process_group=group,
            **self._staging.options(),
        )
        self._newest[directory] = step
        self._pending = _then(written, lambda: steps.remove_old(directory, step, keep))

    def finish(self) -> None:
        """Wait for the save that is being written. Raises what went wrong with it."""
        pending, self._pending = self._pending, None
        if pending is not None:
            try:
                pending.result()
            except CheckpointException as error:
                _raise(error)

    def _ready(self, call: str) -> Any:
        """Return a group of all ranks for these calls alone: other threads use that of the training meanwhile."""
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError(
                f"checkpoint.{call} needs the process group: call torch.distributed.init_process_group before it"
            )
        if self._world() is not dist.group.WORLD:
            self._staging.close()
            self._group = weakref.ref(dist.new_group(backend="gloo"))
            self._world = weakref.ref(dist.group.WORLD)
        return self._group()


_saver = _Saver()


def load(state: dict[str, Any], directory: AnyPath | None = None) -> int:
    """Load the newest whole checkpoint into the state, for this number of ranks; return its step, 0 without one.

    Modules, optimizers and other objects with `load_state_dict` are changed in place; other values are replaced in the
    dict. `directory` is the job's (`spec.agent.checkpoint`) unless given. From then on no earlier round can save there.
    Raises FencedError, OSError, ValueError, and RuntimeError outside of a process group.
    """
    states.check(state)
    _saver.finish()
    return _saver.load(state, _directory(directory))


def save(state: Mapping[str, Any], step: int, directory: AnyPath | None = None, keep: int = 2) -> None:
    """Copy the state, and write it as the checkpoint of this step while the training goes on.

    The newest `keep` checkpoints stay. The call waits for the save before it, and raises its error. Raises ValueError
    for a step that is not above that of the newest checkpoint.
    """
    states.check(state)
    _check_number("step", step, least=0)
    _check_number("keep", keep, least=1)
    _saver.save(state, step, _directory(directory), keep)


def wait() -> None:
    """Wait until the last save is whole. Raises its error. Call it before the process group is destroyed."""
    _saver.finish()


def _directory(given: AnyPath | None) -> Path:
    """Return the directory, which exists and can be written. Raises ValueError and OSError."""
    if given is None:
        rules = CheckpointRules.from_env(os.environ)
        if rules is None:
            raise ValueError(
                f"no directory for checkpoints: {CHECKPOINT} is not set;"
                " set spec.agent.checkpoint in the job, or call with directory=..."
            )
        given = rules.directory
    directory = Path(given).absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".{uuid.uuid4().hex}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(error.errno, f"no checkpoint can be saved in {directory}: {error.strerror}") from error
    return directory


def _check_number(name: str, value: int, least: int) -> None:
    if type(value) is not int or value < least:
        raise ValueError(f"{name}: {value!r} is not a whole number from {least} on")


def _no_progress(step: int, newest: int, directory: Path) -> str:
    if step == newest:
        return f"step {step} is saved already in {directory}"
    return (
        f"step {step} comes before step {newest}, which is saved in {directory}: call load before save,"
        " or give this run a directory of its own"
    )


def _needed(folder: Path) -> dict[str, int] | None:
    """Return the files that a checkpoint consists of, with their least sizes; None if their list cannot be read."""
    found = {steps.METADATA: 0}
    with suppress(pickle.UnpicklingError, EOFError, AttributeError, ImportError, ValueError):
        for info in FileSystemReader(folder).read_metadata().storage_data.values():
            found[info.relative_path] = max(found.get(info.relative_path, 0), info.offset + info.length)
        return found
    return None


def _then(first: "Future[Any]", then: Callable[[], None]) -> "Future[None]":
    """Return a future that is done once `then` has run after the first one; without success of that, it is not run."""
    both: Future[None] = Future()

    def run(done: "Future[Any]") -> None:
        error = done.exception()
        if error is None:
            with suppress(OSError):  # the new checkpoint is whole; the next save removes what is left
                then()
            both.set_result(None)
        else:
            both.set_exception(error)

    first.add_done_callback(run)
    return both


def _raise(error: CheckpointException) -> NoReturn:
    """Raise that another round has taken over, if it is that; else torch's error, which names the ranks."""
    for failure, _ in error.failures.values():
        if isinstance(failure, FencedError):
            raise failure from error
    raise error
