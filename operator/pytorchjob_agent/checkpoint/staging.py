"""Copies a state into memory that stays from save to save: only the first save allocates it, and pins it for CUDA."""

from typing import Any

import torch
from torch.distributed.checkpoint import staging


class Staging:
    """The memory of one series of saves: no save may be under way when the next one is staged, or at the end."""

    def __init__(self) -> None:
        """Allocate nothing yet."""
        self._stager: Any = None

    def options(self) -> dict[str, Any]:
        """Return the arguments by which `async_save` copies into this memory; none if this torch cannot."""
        stager: Any = getattr(staging, "DefaultStager", None)
        if stager is None:  # an older torch copies into new memory with each save
            return {}
        if self._stager is None:
            cuda = torch.cuda.is_available()
            self._stager = stager(staging.StagingOptions(cuda, False, False, cuda))
        return {"async_stager": self._stager}

    def close(self) -> None:
        """Free the memory."""
        stager, self._stager = self._stager, None
        if stager is not None:
            stager.close()
