"""Takes CPU time from a process: the kernel's bandwidth limit of a control group, as a container's CPU limit sets it.

Control groups of version 2 have the limit in `cpu.max`, those of version 1 in `cpu.cfs_quota_us`. It needs root.
"""

import os
from contextlib import suppress
from pathlib import Path

_HIERARCHY = Path("/sys/fs/cgroup")
_PERIOD_MICROSECONDS = 100_000
"""The kernel's default, which kubelets keep."""
_LEAST_MICROSECONDS = 1000


class Throttle:
    """A control group of its own for each of some processes."""

    def __init__(self, parent: Path | None = None) -> None:
        """`parent` is where groups are made: this process's own group, unless another one is given."""
        self._parent = own_group() if parent is None else parent
        self._groups: dict[int, Path] = {}

    def add(self, pid: int) -> None:
        """Move a process with all its threads into a new group, which has no limit yet."""
        group = self._parent / f"throttle-{os.getpid()}-{pid}"
        group.mkdir()
        self._groups[pid] = group
        (group / "cgroup.procs").write_text(str(pid))

    def weigh(self, pid: int, weight: int) -> None:
        """Give the process this many times the CPU time of another one, should both want more than there is."""
        newer = self._groups[pid] / "cpu.weight"
        if newer.exists():
            newer.write_text(str(100 * weight))
        else:
            (self._groups[pid] / "cpu.shares").write_text(str(1024 * weight))

    def limit(self, pid: int, cores: float | None) -> None:
        """Let the process use this much CPU time per second of time; None: as much as there is."""
        quota = None if cores is None else max(round(cores * _PERIOD_MICROSECONDS), _LEAST_MICROSECONDS)
        newer = self._groups[pid] / "cpu.max"
        if newer.exists():
            newer.write_text(f"{'max' if quota is None else quota} {_PERIOD_MICROSECONDS}")
        else:
            (self._groups[pid] / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else quota))

    def close(self) -> None:
        """Remove the groups. Their processes have to be gone."""
        for group in self._groups.values():
            with suppress(OSError):
                group.rmdir()


def own_group(table: str | None = None, hierarchy: Path = _HIERARCHY) -> Path:
    """Return the directory of this process's group that limits CPU time; `table` is /proc/self/cgroup."""
    lines = (Path("/proc/self/cgroup").read_text() if table is None else table).splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return hierarchy / controllers / path.lstrip("/")
    return hierarchy / next(line for line in lines if line.startswith("0::"))[len("0::/") :]
