"""Workers that are about to start, as the core of an agent hands them to its extensions."""

from pathlib import Path

from pytorchjob_agent.rendezvous.extension import StartingWorkers
from pytorchjob_agent.script.agent_side import ProgressFiles
from pytorchjob_agent.stacks.recorders import Recorders
from pytorchjob_agent.stacks.stack_dump import StackDumps


def starting(directory: Path, nproc: int) -> StartingWorkers:
    """So many workers, with real files below `directory`."""
    files = ProgressFiles(directory, nproc)
    return StartingWorkers(directory, nproc, files, StackDumps(directory, nproc), Recorders(directory, nproc))
