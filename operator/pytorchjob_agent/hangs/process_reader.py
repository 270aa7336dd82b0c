"""Reads what /proc shows of the workers and their descendants; `activity` decides what it means."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pytorchjob_agent.hangs.activity import TreeReading
from pytorchjob_agent.system import processes, socket_bytes
from pytorchjob_agent.workers.startup.pytorchjob_startup import SIGNAL

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class _Process:
    """One process; `handles`: it writes its stack on request, so it is a Python that the agent knows."""

    pid: int
    start: int
    state: str
    cpu: float
    bytes: float
    faults: int
    wait: str
    traced: bool
    handles: bool


def read_trees(pids: Collection[int]) -> dict[int, TreeReading]:
    """Return a reading for each of these workers, without the traffic."""
    return {pid: _tree(pid, below) for pid, below in processes.descendants_of(pids).items()}


def with_traffic(reading: TreeReading, store_port: int | None = None) -> TreeReading:
    """Return the reading with its TCP bytes. It takes longer than the rest, and is needed if that shows no activity.

    The round's store, at this port, is not asked for progress: torch's watchdogs read it every second.
    """
    inodes = {pid: socket_bytes.inodes_of(pid) for pid, _ in reading.processes}
    found = socket_bytes.connections({inode for owned in inodes.values() for inode in owned})
    if found is None:
        return replace(reading, traffic=None)
    owned = inodes.get(reading.main, frozenset())
    children = {found[inode].local for inode in found if inode not in owned}
    main_traffic = {
        inode: connection.moved
        for inode, connection in found.items()
        if inode in owned and connection.peer not in children and connection.peer[1] != store_port
    }
    return replace(reading, traffic={inode: each.moved for inode, each in found.items()}, main_traffic=main_traffic)


def _tree(root: int, below: Collection[int]) -> TreeReading:
    found = [process for pid in (root, *below) if (process := _read(pid)) is not None]
    main = next((process.pid for process in found if process.handles), root)
    return TreeReading(
        cpu=sum(process.cpu for process in found),
        main=main,
        main_cpu=_main_cpu(main),
        switches=_switches(main),
        bytes=sum(process.bytes for process in found),
        main_bytes=_moved(Path(f"/proc/{main}/task/{main}/io")),
        faults=sum(process.faults for process in found),
        processes=frozenset((process.pid, process.start) for process in found),
        states=frozenset(process.state for process in found),
        waits=frozenset(process.wait for process in found),
        traced=any(process.traced for process in found),
    )


def _read(pid: int) -> _Process | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        cpu = sum(map(int, fields[11:15])) / _TICKS  # its own, and that of children that were waited for
        start, state, faults = int(fields[19]), fields[0], int(fields[9])
    except (OSError, ValueError, IndexError):
        return None  # it ended meanwhile
    traced, handles = _status(pid)
    moved = _moved(Path(f"/proc/{pid}/io"))
    return _Process(pid, start, state, cpu, moved, faults, _text(Path(f"/proc/{pid}/wchan")), traced, handles)


def _status_of(path: Path) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in _text(path).splitlines())}


def _switches(pid: int) -> int:
    """Return how often the main thread fell asleep."""
    return int(_status_of(Path(f"/proc/{pid}/task/{pid}/status")).get("voluntary_ctxt_switches") or 0)


def _status(pid: int) -> tuple[bool, bool]:
    """Return whether a debugger is attached, and whether the process has the handler for stacks."""
    values = _status_of(Path(f"/proc/{pid}/status"))
    return values.get("TracerPid", "0") != "0", _catches(values, SIGNAL)


def _catches(status: Mapping[str, str], signal: int) -> bool:
    return bool(int(status.get("SigCgt") or "0", 16) >> (signal - 1) & 1)


def _main_cpu(pid: int) -> float:
    """Return the CPU seconds of a process' main thread: in nanoseconds if the kernel counts them, else in ticks."""
    precise = _text(Path(f"/proc/{pid}/task/{pid}/schedstat")).split()
    if precise and precise[0] != "0":
        return int(precise[0]) / 1e9
    fields = _text(Path(f"/proc/{pid}/task/{pid}/stat")).rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS if len(fields) > 12 else 0.0


def _moved(path: Path) -> float:
    """Return the bytes that were read and written by system calls; 0 if /proc does not show them."""
    lines = _text(path).splitlines()
    return float(sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:"))))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
