"""Programs as processes of their own."""

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pytorchjob_agent.system.processes import descendants
from tests.waiting import until


def start(
    command: Sequence[str | Path], log_file: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program that ends with this process at the latest; its output goes to the end of a file."""
    ends_with_us = ["setpriv", "--pdeathsig", "KILL", *command]
    with log_file.open("ab") as log:
        return subprocess.Popen(
            ends_with_us, env={**os.environ, **(env or {})}, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )


class Turns:
    """For tests that tell the time of processes: it may go on only once each of them had the chance to do something.

    On a busy machine what is ready to run waits for a CPU, or for a disk. To who measures it, it does nothing.
    """

    def __init__(self, pids: Collection[int]) -> None:
        """`pids`: the processes; their descendants belong to them."""
        self._pids = tuple(pids)
        self._used: dict[int, int] = {}
        """The CPU time of each when it had its last turn, in ticks."""

    def wait(self) -> None:
        """Wait until none of them waits for the machine."""
        until(lambda: not any(self._waits(pid) for pid in self._all()), every=0.005)
        self._used = {pid: _state(pid)[1] for pid in self._all()}

    def _all(self) -> list[int]:
        return [*self._pids, *(below for pid in self._pids for below in descendants(pid))]

    def _waits(self, pid: int) -> bool:
        state, used = _state(pid)
        return state in ("R", "D") and used == self._used.setdefault(pid, used)


def _state(pid: int) -> tuple[str, int]:
    """The state of a process in a letter, and its CPU time in ticks; that of an ended process is not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[11]) + int(fields[12])
