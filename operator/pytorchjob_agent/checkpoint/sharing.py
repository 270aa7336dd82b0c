"""What ranks exchange before they load: the checkpoints that each of them sees, and files that some lack.

Before a round the agents bring all parts of a checkpoint to each pod. Without the coordinator they do not, and then
the ranks do it here.
"""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pytorchjob_agent.checkpoint import steps
from pytorchjob_agent.checkpoint.steps import Chosen, FoundCheckpoint

_CHUNK = 16 << 20


def compare(found: Mapping[int, FoundCheckpoint], group: Any) -> list[dict[int, FoundCheckpoint]]:
    """Return what each rank has found."""
    by_rank: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(by_rank, dict(found), group=group)
    return by_rank


def fetch(folder: Path, chosen: Chosen, by_rank: Sequence[Mapping[int, FoundCheckpoint]], group: Any) -> None:
    """Bring the files of a checkpoint to the ranks that lack them. Raises OSError."""
    own = by_rank[dist.get_rank()].get(chosen.step)
    for name, source in steps.missing(chosen, by_rank).items():
        lacks = own is None or name not in own.files
        _copy(folder / name, by_rank[source][chosen.step].files[name], source, group, lacks=lacks)


def _copy(path: Path, size: int, source: int, group: Any, *, lacks: bool) -> None:
    """Send a file of one rank to all others; those that lack it keep it. Raises OSError."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}") if lacks else None
    sends = path.open("rb") if dist.get_rank() == source else None
    keeps = new.open("wb") if new is not None else None
    for at in range(0, size, _CHUNK):
        data = bytearray(min(_CHUNK, size - at))
        if sends is not None:
            sends.readinto(data)
        dist.broadcast(torch.frombuffer(data, dtype=torch.uint8), source, group=group)
        if keeps is not None:
            keeps.write(data)
    for file in filter(None, (sends, keeps)):
        file.close()
    if new is not None:
        new.rename(path)
