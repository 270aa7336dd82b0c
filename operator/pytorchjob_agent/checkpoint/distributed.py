"""Guarded saves and loads with `torch.distributed.checkpoint`: a writer and a reader in the place of torch's own.

    dcp.save(state, checkpoint_id=folder / "step-100", storage_writer=GuardedWriter(folder / "step-100"))
    dcp.load(state, checkpoint_id=folder / "step-100", storage_reader=GuardedReader(folder / "step-100"))

All ranks write into one folder of their round, and the coordinating rank gives it its final name at the end. Ranks
have to share the file system. The fence is in the folder that holds the checkpoints, beside them.
"""

import shutil
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult

from pytorchjob_agent.checkpoint.fence import Fence, save_into
from pytorchjob_agent.checkpoint.files import AnyPath, fence_of, take_over


class GuardedWriter(FileSystemWriter):
    """torch's FileSystemWriter, whose checkpoint appears at once, and only if no later round has taken over.

    Raises FencedError otherwise. Outside of a round it writes as torch's own, but the checkpoint appears at once too.
    """

    def __init__(self, path: AnyPath, **options: Any) -> None:
        """Take a checkpoint's folder, and the options of FileSystemWriter."""
        super().__init__(path, **options)
        self._final = Path(path)
        self._fence: Fence | None = None

    def reset(self, checkpoint_id: AnyPath | None = None) -> None:
        """Begin another checkpoint."""
        super().reset(checkpoint_id)
        if checkpoint_id is not None:
            self._final = Path(checkpoint_id)

    @property
    def checkpoint_id(self) -> AnyPath:
        """The folder that the checkpoint is going to have."""
        return self._final

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Choose the folder to write in: the same for all ranks of the round."""
        if not kwargs.get("use_collectives", True):
            raise ValueError("use_collectives=False: no rank knows when all have written; use pytorchjob_agent.save")
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)
        self._fence = fence_of(self._final)
        folder = self._final.parent if self._fence is None else self._fence.take_over(loads=False)
        self.path = folder / f".{self._final.name}.new"

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Remove what an earlier attempt has left; no rank writes before this."""
        shutil.rmtree(self.path, ignore_errors=True)
        Path(self.path).mkdir()
        prepared: list[SavePlan] = super().prepare_global_plan(plans)
        return prepared

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the metadata, and give the checkpoint its final name."""
        super().finish(metadata, results)
        if self._fence is None:
            save_into(Path(self.path), self._final)
        else:
            self._fence.commit(Path(self.path), self._final)


class GuardedReader(FileSystemReader):
    """torch's FileSystemReader, after whose first use no earlier round can save beside this checkpoint."""

    def __init__(self, path: AnyPath, **options: Any) -> None:
        """Take over the directory of the checkpoint. Raises FencedError if a later round has done so."""
        super().__init__(path, **options)
        take_over(Path(path).parent)
