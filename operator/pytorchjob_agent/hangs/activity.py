"""Measures the workers' activity in /proc: do a worker and its descendants compute, read, write or send data?

`judge` decides what it means. It is measured only in a stall, or if the job has a rule for idleness.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytorchjob_agent.hangs.judge import Activity
from pytorchjob_agent.system.processes import descendants

_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = 0.02  # of one core; sleeping threads that wake up occasionally use less
_BYTES = 4096  # a second; an occasional line of log and the worker's progress reports are less
_STOPPED = frozenset("Tt")
_BLOCKED = "D"  # in the kernel: mostly a disk or a network file system at work
_GONE = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process and its descendants have used so far, in seconds of CPU and bytes."""

    cpu: float = 0.0
    bytes: float = 0.0
    states: frozenset[str] = frozenset()

    def busier(self, before: "Usage", seconds: float) -> bool:
        """Return whether it was active in the seconds since `before`."""
        if self.states & {_BLOCKED}:
            return True
        cpu, moved = self.cpu - before.cpu, self.bytes - before.bytes
        # Less than before: a child has ended without being waited for, which is activity too.
        return not (0 <= cpu <= _BUSY * seconds and 0 <= moved <= _BYTES * seconds)


def usage(pid: int) -> Usage:
    """Return what the process tree of `pid` has used; without states if it is gone."""
    found = [process for each in (pid, *descendants(pid)) if (process := _process(each)) is not None]
    states = frozenset(state for _, state, _ in found)
    return Usage(sum(cpu for cpu, _, _ in found), sum(moved for _, _, moved in found), states)


def _process(pid: int) -> tuple[float, str, float] | None:
    """Return a process' CPU seconds (including those of children that were waited for), state and bytes."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS, fields[0], _moved(pid)
    except (OSError, ValueError, IndexError):
        return None


def _moved(pid: int) -> float:
    """Return the bytes that it read and wrote by system calls; 0 if /proc does not show them."""
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
    """Measures the activity of one round's workers; the pod's network traffic counts for all of them."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        """Take the workers' pids by local rank."""
        self._pids = pids
        self._before: dict[int, tuple[float, Usage]] = {}
        self._busy: dict[int, float] = {}
        self._network: tuple[float, float] | None = None
        self._sent = 0.0

    def take(self, local_rank: int, now: float) -> Activity:
        """Measure one worker; its quiet time counts from the first measurement."""
        present = usage(self._pids[local_rank])
        at, before = self._before.get(local_rank, (now, present))
        self._before[local_rank] = (now, present)
        if local_rank not in self._busy or (now > at and present.busier(before, now - at)):
            self._busy[local_rank] = now
        return Activity(
            # Data moved by sendfile, or by threads that hardly use the CPU, is visible in the network only.
            quiet_for=min(now - self._busy[local_rank], self._silence(now)),
            stopped=bool(present.states & _STOPPED),
            gone=present.states <= _GONE,
        )

    def _silence(self, now: float) -> float:
        """Return for how many seconds the network has been silent, counted from the first measurement."""
        if self._network is not None and now == self._network[0]:
            return now - self._sent  # measured for another worker at the same time
        present = network()
        at, before = self._network or (now, present)
        if self._network is None or not 0 <= present - before <= _BYTES * (now - at):
            self._sent = now
        self._network = (now, present)
        return now - self._sent

    def forget(self, local_rank: int) -> None:
        """Discard a worker's measurements: its stall is over."""
        self._before.pop(local_rank, None)
        self._busy.pop(local_rank, None)
