"""The agent's side of the files in which workers record their collectives (`workers/startup/pytorchjob_recorder`)."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pytorchjob_agent.contract.collectives import MOST_POSITIONS, MOST_RECENT, GroupPosition
from pytorchjob_agent.workers.startup import pytorchjob_recorder
from pytorchjob_agent.workers.startup.pytorchjob_recorder import RECORDER, SIZE


class Recorders:
    """The files of one round's workers."""

    def __init__(self, directory: Path, nproc: int) -> None:
        """Make `nproc` files below `directory`, which is created if necessary."""
        directory.mkdir(parents=True, exist_ok=True)
        self._paths = [directory / f"{local_rank}.collectives" for local_rank in range(nproc)]
        for path in self._paths:
            path.touch(0o600)
            os.truncate(path, SIZE)

    def env(self, local_rank: int) -> dict[str, str]:
        """Return the variables that this worker needs."""
        return {RECORDER: str(self._paths[local_rank])}

    def moves(self, local_rank: int) -> tuple[int, int]:
        """Return the optimizer steps and the collectives that a worker has begun; 0 and 0 before torch 2.15."""
        return pytorchjob_recorder.moves(_read(self._paths[local_rank], pytorchjob_recorder.HEAD))

    def positions(self, first_rank: int, now: int) -> tuple[GroupPosition, ...]:
        """Return where the workers are in their groups; `now` in nanoseconds of the monotonic clock."""
        most = max(MOST_POSITIONS // max(len(self._paths), 1), 1)
        ranks = enumerate(self._paths, first_rank)
        return tuple(position for rank, path in ranks for position in _positions(rank, _read(path, SIZE), most, now))

    def close(self) -> None:
        """Remove the files."""
        for path in self._paths:
            path.unlink(missing_ok=True)


def _positions(rank: int, data: bytes, most: int, now: int) -> Iterator[GroupPosition]:
    """Yield the groups that were used last, the last one first."""
    groups = sorted(pytorchjob_recorder.read(data), key=lambda group: -group.place)
    for index, group in enumerate(groups[:most]):
        latest = index == 0 and group.place > 0
        age = max(now - group.at, 0) // 1_000_000
        yield GroupPosition(rank, group.name, group.begun, latest, age, tuple(group.calls[-MOST_RECENT:]))


def _read(path: Path, size: int) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(size)
    return b""
