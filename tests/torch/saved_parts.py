"""Ranks that save one checkpoint with GuardedWriter, all in one process, and that may be killed at any operation."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from pytorchjob_agent.checkpoint.storage import GuardedWriter

_CHANGES = {"open", "os.rename", "os.mkdir", "os.link", "os.remove", "os.rmdir", "os.truncate"}


class KilledError(BaseException):
    """The process is gone: nothing is cleared up."""


@dataclass
class Killer:
    """Ends the process at a change of a file below a folder, and lets nothing happen after it."""

    below: str = ""
    left: int | None = None
    """Changes that are still made. None: all."""
    killed: bool = False

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Receive an event of Python's audit, before it happens."""
        if self.left is None or event not in _CHANGES or not str(args[0]).startswith(self.below):
            return
        if event == "open" and not (isinstance(args[1], str) and set(args[1]) & set("wax+")):
            return
        self.left -= 1
        if self.left < 0:
            self.killed = True
            raise KilledError


_killer = Killer()
sys.addaudithook(lambda event, args: _killer.hear(event, args))


@contextmanager
def killed_after(changes: int, below: Path) -> Iterator[Killer]:
    """Kill the process after this number of changes below a folder, if it makes more."""
    _killer.below, _killer.left, _killer.killed = str(below), changes, False
    try:
        yield _killer
    except KilledError:
        pass
    finally:
        _killer.left = None


@dataclass
class Ranks:
    """Ranks, each with the directory in which it saves."""

    directories: Sequence[Path]
    writers: list[GuardedWriter] = field(init=False)

    def save(self, name: str, states: Sequence[dict[str, Any]] | None = None) -> None:
        """Save as torch.distributed.checkpoint does it: plan, write, finish."""
        given = states or [{f"of {rank}": torch.full((8,), float(rank))} for rank in range(len(self.directories))]
        self.writers = [GuardedWriter(directory / name) for directory in self.directories]
        planners, plans = [], []
        for rank, (writer, state) in enumerate(zip(self.writers, given, strict=True)):
            planner = DefaultSavePlanner()
            planner.set_up_planner(state_dict=state, storage_meta=None, is_coordinator=rank == 0)
            writer.set_up_storage_writer(rank == 0)
            planners.append(planner)
            plans.append(writer.prepare_local_plan(planner.create_local_plan()))
        plans, metadata = planners[0].create_global_plan(plans)
        plans = self.writers[0].prepare_global_plan(plans)
        results = [
            writer.write_data(planner.finish_plan(plan), planner).value()
            for writer, planner, plan in zip(self.writers, planners, plans, strict=True)
        ]
        self.writers[0].finish(metadata, results)
