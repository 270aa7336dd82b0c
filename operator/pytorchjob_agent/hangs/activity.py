"""What /proc tells of the workers: do they and all below them compute, read, write or send, or are they stopped?

Reads only; what it means is decided in `hang`. Called in a stall or where idleness is a rule, not at other times.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytorchjob_agent.hangs.judge import Activity
from pytorchjob_agent.system.processes import descendants

_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = 0.02  # of one core: sleeping threads that wake up now and then take less
_BYTES = 4096  # a second: a line of log now and then, or our own reports, are less
_STOPPED = frozenset("Tt")
_BLOCKED = "D"  # in the kernel: mostly a disk or a network file system at work
_GONE = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process and all below it have used so far, in seconds of CPU and bytes."""

    cpu: float = 0.0
    bytes: float = 0.0
    states: frozenset[str] = frozenset()

    def busier(self, before: "Usage", seconds: float) -> bool:
        """Whether it did anything worth mentioning in the seconds since `before`."""
        if self.states & {_BLOCKED}:
            return True
        cpu, moved = self.cpu - before.cpu, self.bytes - before.bytes
        # Less than before: a child has ended and was not waited for, which is something too.
        return not (0 <= cpu <= _BUSY * seconds and 0 <= moved <= _BYTES * seconds)


def usage(pid: int) -> Usage:
    """Return what the tree below `pid` has used; no states where it is gone."""
    found = [one for process in (pid, *descendants(pid)) if (one := _process(process)) is not None]
    states = frozenset(one[1] for one in found)
    return Usage(sum(one[0] for one in found), sum(one[2] for one in found), states)


def _process(pid: int) -> tuple[float, str, float] | None:
    """Return CPU seconds (with those of children that were waited for), state and bytes of one process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS, fields[0], _moved(pid)
    except (OSError, ValueError, IndexError):
        return None


def _moved(pid: int) -> float:
    """Return the bytes that it read and wrote by calls; 0 where that is kept from us."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0.0
    return float(sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:"))))


def network() -> float:
    """Return the bytes that all interfaces of this pod have received and sent."""
    try:
        lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    except OSError:
        return 0.0
    return float(sum(_line(line) for line in lines))


def _line(line: str) -> int:
    fields = line.rpartition(":")[2].split()
    return int(fields[0]) + int(fields[8])


class ActivityMeter:
    """The pulses of one round's workers; traffic of the pod counts for all of them."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        """Take the workers' pids by local rank."""
        self._pids = pids
        self._before: dict[int, tuple[float, Usage]] = {}
        self._busy: dict[int, float] = {}
        self._network: tuple[float, float] | None = None
        self._sent = 0.0

    def take(self, local_rank: int, now: float) -> Activity:
        """Look at one worker; how long it has been quiet is counted from the first look at it."""
        present = usage(self._pids[local_rank])
        at, before = self._before.get(local_rank, (now, present))
        self._before[local_rank] = (now, present)
        if local_rank not in self._busy or (now > at and present.busier(before, now - at)):
            self._busy[local_rank] = now
        return Activity(
            # What moves data by sendfile, or in threads that hardly need the CPU, shows in the network alone.
            quiet_for=min(now - self._busy[local_rank], self._silence(now)),
            stopped=bool(present.states & _STOPPED),
            gone=present.states <= _GONE,
        )

    def _silence(self, now: float) -> float:
        """Return for how many seconds the network has been flat, counted from the first look."""
        if self._network is not None and now == self._network[0]:
            return now - self._sent  # looked at for another worker
        present = network()
        at, before = self._network or (now, present)
        if self._network is None or not 0 <= present - before <= _BYTES * (now - at):
            self._sent = now
        self._network = (now, present)
        return now - self._sent

    def forget(self, local_rank: int) -> None:
        """Begin anew with a worker: its stall is over."""
        self._before.pop(local_rank, None)
        self._busy.pop(local_rank, None)
