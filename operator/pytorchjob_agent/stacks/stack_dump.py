"""Gets the stacks of running workers, for the log and for a verdict, without ever ending a worker.

The agent sends a signal, and the handler in `workers/startup` writes the stacks to a file of the worker's own. Its
error output is unsuitable: lines of other threads would interleave, and the script may have redirected it. The stacks
then go to the log with the worker's rank before each line.
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytorchjob_agent.stacks.stack_analysis import LONGEST, cut, is_whole
from pytorchjob_agent.system.processes import descendants, handles
from pytorchjob_agent.workers.output import WorkerStream
from pytorchjob_agent.workers.startup import pytorchjob_startup
from pytorchjob_agent.workers.startup.pytorchjob_startup import ASKED, BEGUN, DONE, SIGNAL, STACKS

_PYTHONPATH = "PYTHONPATH"
_STARTUP = Path(pytorchjob_startup.__file__).parent
_MOST = 64 * LONGEST  # bytes that are read of a file
_POLL = 0.05
_LONGEST_SOURCE = 4 * 1024 * 1024


class StackDumps:
    """The stack files of one round's workers."""

    def __init__(self, directory: Path, nproc: int) -> None:
        """Make `nproc` files below `directory`, which is created if necessary."""
        directory.mkdir(parents=True, exist_ok=True)
        self._paths = {local_rank: directory / f"{local_rank}.stack" for local_rank in range(nproc)}
        for path in self._paths.values():
            path.touch(0o600)

    def env(self, local_rank: int, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that this worker needs in addition to `environ`."""
        own, inherited = str(_STARTUP), environ.get(_PYTHONPATH, "")
        return {
            STACKS: str(self._paths[local_rank]),
            _PYTHONPATH: f"{own}{os.pathsep}{inherited}" if inherited else own,
        }

    def ask(self, pids: Mapping[int, int]) -> None:
        """Request the stacks of these workers (pids by local rank), without waiting."""
        for local_rank, pid in pids.items():
            with contextlib.suppress(OSError):
                os.truncate(self._paths[local_rank], 0)
            _signal(pid)

    def read(self) -> dict[int, str]:
        """Return the stacks written since the request, by local rank; workers that wrote nothing are left out."""
        texts = {local_rank: cut(_read(path)) for local_rank, path in self._paths.items()}
        return {local_rank: text for local_rank, text in texts.items() if text}

    def read_worker(self, local_rank: int) -> str:
        """Return the stacks that this worker has written since the request; empty until it has written all."""
        text = _read(self._paths[local_rank])
        return cut(text) if _is_whole(text) else ""

    def size(self, local_rank: int) -> int:
        """Return the bytes that a worker has written since the request."""
        with contextlib.suppress(OSError):
            return self._paths[local_rank].stat().st_size
        return 0

    def collect(self, pids: Mapping[int, int], streams: Mapping[int, WorkerStream], timeout: float) -> dict[int, str]:
        """Request the stacks, wait until all are written or `timeout` seconds are over, and print them."""
        self.ask(pids)
        texts = self._wait(pids, timeout)
        for local_rank, text in texts.items():
            if local_rank in streams:
                streams[local_rank].write_lines(text)
        return texts

    def _wait(self, local_ranks: Iterable[int], timeout: float) -> dict[int, str]:
        """Poll until these workers have written all, and return what there is."""
        asked = [self._paths[local_rank] for local_rank in local_ranks]
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            time.sleep(_POLL)
            if all(_is_whole(_read(path)) for path in asked):
                break
        return self.read()

    def close(self) -> None:
        """Remove the files, and those of profiles."""
        for path in self._paths.values():
            for end in ("", ASKED, BEGUN, DONE):
                path.with_name(path.name + end).unlink(missing_ok=True)


def _signal(pid: int) -> None:
    """Signal the worker, or its first descendant with the handler if the worker has none (e.g. a shell)."""
    ready = next((each for each in (pid, *descendants(pid)) if handles(each, SIGNAL)), None)
    if ready is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(ready, SIGNAL)


def source_around(file: str, line: int) -> str:
    """Return a line of a script with its neighbours: a loop that polls is seen at each of its lines."""
    try:
        # A pipe of this name must not hold the agent up.
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                return ""
            text = opened.read(_LONGEST_SOURCE).decode(errors="replace")
    except (OSError, ValueError):
        return ""
    return "\n".join(text.splitlines()[max(0, line - 2) : line + 1])


def _is_whole(text: str) -> bool:
    return is_whole(text) or len(text) >= _MOST


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST).decode(errors="replace")
    except OSError:
        return ""
