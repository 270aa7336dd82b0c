"""Guarded saves and loads with `torch.distributed.checkpoint`: a writer and a reader in the place of torch's own.

A directory of checkpoints may be shared by all ranks, or each pod may have one of its own (docs/checkpoints.md). The
ranks find out which: each of them names its directory in its plan, and the coordinating rank answers with the ranks
that write beside it. In every directory a checkpoint's folder appears by one rename, once all ranks have written there:

- elsewhere the rank that is the last to write renames,
- where the coordinating rank writes, that rank does so, after all others: with its folder the checkpoint is whole.

Each rank leaves a marker with the number of its files. So the agent of each pod knows at once that the folder is whole.
"""

import functools
import os
import shutil
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from pytorchjob_agent.checkpoint import fence
from pytorchjob_agent.checkpoint.fence import SaveFence, save_into
from pytorchjob_agent.checkpoint.files import AnyPath, fence_of, take_over
from pytorchjob_agent.contract.checkpoint_rules import marker_of, read_marker
from pytorchjob_agent.system.first_text import first_text


@dataclass(frozen=True, slots=True)
class _Part:
    """What one rank writes; its plan carries this to the coordinating rank and back."""

    directory: str
    """The directory that the rank writes to; equal for the ranks that share it."""
    prefix: str = ""
    """How the names of its files begin. torch's writer reads it."""
    rank: int = 0
    """The place of the rank among those that save."""
    beside: tuple[int, ...] = ()
    """The ranks that write to this directory. None where the coordinating rank writes."""


class GuardedWriter(FileSystemWriter):
    """torch's FileSystemWriter, whose checkpoint appears at once, and only if no later round has taken over.

    Raises FencedError otherwise. Outside of a round it writes as torch's own, but the checkpoint appears at once too.
    """

    def __init__(self, path: AnyPath, **options: Any) -> None:
        """Take a checkpoint's folder, and the options of FileSystemWriter."""
        super().__init__(path, **options)
        self._final = Path(path)
        self._fence: SaveFence | None = None
        self._directory = ""

    def reset(self, checkpoint_id: AnyPath | None = None) -> None:
        """Begin another checkpoint."""
        super().reset(checkpoint_id)
        if checkpoint_id is not None:
            self._final = Path(checkpoint_id)

    @property
    def checkpoint_id(self) -> AnyPath:
        """The folder that the checkpoint is going to have."""
        return self._final

    def stage(self, state_dict: Any) -> Any:
        """Copy the state for an asynchronous save."""
        return super().stage(_cloned(state_dict) if _stages_no_copy() else state_dict)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Choose the folder to write in: the same for all ranks of the round that share a directory."""
        if not kwargs.get("use_collectives", True):
            raise ValueError("use_collectives=False: no rank knows when all have written; use pytorchjob_agent.save")
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)
        self._fence = fence_of(self._final)
        folder = self._final.parent if self._fence is None else self._fence.take_over(loads=False)
        self.path = folder / f".{self._final.name}.new"

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Remove what an earlier attempt has left; no rank writes before all have done so."""
        for left in (Path(self.path), self._claimed):
            shutil.rmtree(left, ignore_errors=True)
        prepared = super().prepare_local_plan(plan)
        self._directory = first_text(self._identity, uuid.uuid4().hex)
        return replace(prepared, storage_data=_Part(self._directory))

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Give each rank those that write to the same directory."""
        directories = [plan.storage_data.directory for plan in plans]
        together: dict[str, tuple[int, ...]] = {self._directory: ()}
        for directory in {*directories} - {self._directory}:
            together[directory] = tuple(rank for rank, other in enumerate(directories) if other == directory)
        parts = [_Part(each, f"__{rank}_", rank, together[each]) for rank, each in enumerate(directories)]
        return [replace(plan, storage_data=part) for plan, part in zip(plans, parts, strict=True)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the files of this rank, and then its marker; the last rank of its directory gives the folder its name.

        Where the coordinating rank writes, it does that in `finish`.
        """
        results = super().write_data(plan, planner)
        results.wait()
        part: _Part = plan.storage_data
        self._mark(part)
        if part.beside:
            self._commit_last(part)
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the metadata, and give the checkpoint its final name: all other ranks have written."""
        super().finish(metadata, results)
        self._commit(Path(self.path))

    def _mark(self, part: _Part) -> None:
        """Note how many files this rank has written, and for which round. Files without content do not count."""
        names = [path for path in Path(self.path).iterdir() if path.name.startswith(part.prefix)]
        for path in names:
            if not path.stat().st_size:
                path.unlink()
        written = sum(path.exists() for path in names)
        writer = fence.FencedWriter.from_env(os.environ)
        marker = Path(self.path) / marker_of(part.rank, written)
        new = marker.with_name(f".{marker.name}.new")
        new.write_text("" if writer is None else f"{writer.job} {writer}\n")
        fence.sync(new)
        new.rename(marker)

    def _commit_last(self, part: _Part) -> None:
        """Commit if all ranks of the directory have written. Of several that see so, one can rename the folder."""
        try:
            marked = {found[0] for name in os.listdir(self.path) if (found := read_marker(name)) is not None}
            if marked >= {*part.beside}:
                Path(self.path).rename(self._claimed)
                self._commit(self._claimed)
        except FileNotFoundError:
            if self._fence is not None:
                self._fence.take_over(loads=False)  # raises the reason, if it is that this round was superseded

    def _commit(self, written: Path) -> None:
        if self._fence is None:
            save_into(written, self._final)
        else:
            self._fence.commit(written, self._final)
        self._identity.unlink(missing_ok=True)

    @property
    def _claimed(self) -> Path:
        return Path(self.path).with_name(f".{self._final.name}.all")

    @property
    def _identity(self) -> Path:
        return Path(self.path).with_name(f".{self._final.name}.directory")


class GuardedReader(FileSystemReader):
    """torch's FileSystemReader, after whose first use no earlier round can save beside this checkpoint."""

    def __init__(self, path: AnyPath, **options: Any) -> None:
        """Take over the directory of the checkpoint. Raises FencedError if a later round has done so."""
        super().__init__(path, **options)
        take_over(Path(path).parent)


@functools.cache
def _stages_no_copy() -> bool:
    """Return whether this torch writes the very tensors of the CPU that the training goes on to change."""
    tensor = torch.zeros(1)
    return bool(BlockingAsyncStager().stage({"": tensor})[""].data_ptr() == tensor.data_ptr())


def _cloned(value: Any) -> Any:
    """Copy the tensors of the CPU; torch itself copies those of other devices."""
    if isinstance(value, dict):
        return {key: _cloned(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_cloned, value))
    if isinstance(value, torch.Tensor) and value.device.type == "cpu":
        return value.detach().clone()
    return value
