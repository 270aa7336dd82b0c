"""Gets the stacks of workers that live, for the log and for a verdict, and never ends one by asking.

A worker writes them to a file of its own, not to its error output: there other threads' lines would tear them apart,
and the script may have put it elsewhere. From the file they go to the log with the worker's rank before each line.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from pytorchjob_agent.hangs.stack_analysis import LONGEST, cut
from pytorchjob_agent.system.processes import descendants
from pytorchjob_agent.workers.output import Stream
from pytorchjob_agent.workers.startup import pytorchjob_startup
from pytorchjob_agent.workers.startup.pytorchjob_startup import SIGNAL, STACKS

_PYTHONPATH = "PYTHONPATH"
_STARTUP = Path(pytorchjob_startup.__file__).parent
_MOST = 64 * LONGEST  # bytes that are read of a file
_POLL = 0.05


class StackDumps:
    """The files of one round's workers."""

    def __init__(self, directory: Path, nproc: int) -> None:
        """Make `nproc` files below `directory`, which is made if it is not there."""
        directory.mkdir(parents=True, exist_ok=True)
        self._paths = {local_rank: directory / f"{local_rank}.stack" for local_rank in range(nproc)}
        for path in self._paths.values():
            path.touch(0o600)

    def env(self, local_rank: int, environ: Mapping[str, str]) -> dict[str, str]:
        """Return what this worker's environment needs, over that which it would have."""
        own, others = str(_STARTUP), environ.get(_PYTHONPATH, "")
        return {STACKS: str(self._paths[local_rank]), _PYTHONPATH: f"{own}{os.pathsep}{others}" if others else own}

    def ask(self, pids: Mapping[int, int]) -> None:
        """Ask these workers, by local rank, for their stacks; none is waited for."""
        for local_rank, pid in pids.items():
            with contextlib.suppress(OSError):
                os.truncate(self._paths[local_rank], 0)
            _signal(pid)

    def read(self) -> dict[int, str]:
        """Return what was written since they were asked, by local rank; nothing of those who wrote nothing."""
        texts = {local_rank: _read(path) for local_rank, path in self._paths.items()}
        return {local_rank: cut(text) for local_rank, text in texts.items() if text}

    def collect(self, pids: Mapping[int, int], streams: Mapping[int, Stream], timeout: float) -> dict[int, str]:
        """Ask, wait until all have written or the time is over, and print what came into their streams."""
        self.ask(pids)
        texts = self._wait(len(pids), timeout)
        for local_rank, text in texts.items():
            if local_rank in streams:
                streams[local_rank].say(text)
        return texts

    def _wait(self, number: int, timeout: float) -> dict[int, str]:
        """Poll until the files of so many workers have stopped to grow."""
        deadline = time.monotonic() + timeout
        before: dict[int, str] = {}
        while time.monotonic() < deadline:
            time.sleep(_POLL)
            texts = self.read()
            if len(texts) >= number and texts == before:
                return texts
            before = texts
        return self.read()

    def close(self) -> None:
        """Remove the files."""
        for path in self._paths.values():
            path.unlink(missing_ok=True)


def _signal(pid: int) -> None:
    """Send the signal to the worker, or to the first below it where it is no Python of ours (a shell, say)."""
    ready = pid if _catches(pid) else next(filter(_catches, descendants(pid)), None)
    if ready is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(ready, SIGNAL)


def _catches(pid: int) -> bool:
    """Whether the process has a handler: the signal would end it otherwise."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (SIGNAL - 1) & 1)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST).decode(errors="replace")
    except OSError:
        return ""
