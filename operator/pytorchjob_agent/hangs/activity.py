"""Decides from two readings of /proc what a worker and its descendants did in between. Pure.

There are two standards. The work of children, threads, disks and the network counts from an amount that background
threads do not reach (telemetry, watchdogs). Of the thread that trains, the smallest sign counts: a line that it
printed, a byte that it read or sent to another rank, more CPU time than a mere wake-up takes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

_BUSY = 0.02  # of one core; sleeping threads that wake up occasionally use less
_BYTES = 4096  # a second
_FAULTS = 8  # pages that were read from a disk
_WAKE_UP = 0.00025  # seconds of CPU: a poll of a queue takes 0.1 ms, the smallest step of a training 0.9 ms
_NOISE = 0.00015
_DUMPING = 0.005  # seconds of CPU that writing the stacks takes at most
_STOPPED = frozenset("Tt")
_GONE = frozenset("ZX")
_BLOCKED = "D"  # in the kernel: mostly a disk or a network file system at work
_STORAGE = ("fuse", "request_wait_answer", "nfs", "rpc_wait", "ceph", "cifs", "p9_", "lustre", "ptlrpc", "io_schedule")
_NETWORK = (
    "tcp_recvmsg",
    "sk_wait_data",
    "wait_woken",
    "inet_wait_for_connect",
    "inet_csk_accept",
    "skb_wait_for_more",
)


class Motion(StrEnum):
    """What a worker did between two readings."""

    BUSY = "busy"
    """It worked, or something works for it."""
    STIRS = "stirs"
    """The thread that trains exchanged something with the world, or waits for the network."""
    SPINS = "spins"
    """The thread that trains used the CPU, and did nothing else: it computes, or it polls."""
    RESTS = "rests"


@dataclass(frozen=True, slots=True)
class TreeReading:
    """What /proc shows of a worker and its descendants; the counters only grow.

    `main` is the thread that trains: the main thread of the worker, or of the Python process below a shell.
    """

    main: int = 0  # pid
    cpu: float = 0.0  # seconds, with those of children that were waited for
    main_cpu: float = 0.0
    bytes: float = 0.0  # read and written by system calls; receiving from a socket does not count
    main_bytes: float = 0.0
    switches: int = 0  # how often the main thread fell asleep
    faults: int = 0  # pages that had to be read from a disk
    processes: frozenset[tuple[int, int]] = frozenset()  # pid and start
    states: frozenset[str] = frozenset()
    waits: frozenset[str] = frozenset()  # the kernel's functions in which the processes' main threads wait
    traced: bool = False  # by a debugger
    traffic: Mapping[int, int] | None = None  # TCP bytes by socket; None: not read
    main_traffic: Mapping[int, int] | None = None  # between the main thread's process and others than its children

    @property
    def gone(self) -> bool:
        """Return whether no process is left."""
        return self.states <= _GONE

    @property
    def stopped(self) -> bool:
        """Return whether a process was stopped by a signal, and not by a debugger."""
        return not self.traced and bool(self.states & _STOPPED)


@dataclass(frozen=True, slots=True)
class Interval:
    """The circumstances of two readings."""

    seconds: float
    dumped: int | None = None  # bytes of the stacks that it wrote on request; None: there was no request


def motion(before: TreeReading, after: TreeReading, interval: Interval) -> Motion:
    """Return what happened between the readings."""
    if _works(before, after, interval):
        return Motion.BUSY
    if _exchanges(before, after, interval):
        return Motion.STIRS
    woken = after.switches - before.switches
    return Motion.SPINS if _computed(before, after, interval) > _NOISE + _WAKE_UP * woken else Motion.RESTS


def is_idle(before: TreeReading, after: TreeReading, interval: Interval) -> bool:
    """Return whether it did no noticeable work, whatever it waits for."""
    return not _works(before, after, interval) and _computed(before, after, interval) <= _BUSY * interval.seconds


def shows_sign(before: TreeReading, after: TreeReading, interval: Interval) -> bool:
    """Return whether it shows another sign of life than CPU time: also one that waits for a GPU may use that."""
    printed = after.main_bytes - before.main_bytes > (interval.dumped or 0)
    return printed or _acts(before, after, interval) or _traffic(before.main_traffic, after.main_traffic) > 0


def _computed(before: TreeReading, after: TreeReading, interval: Interval) -> float:
    return after.main_cpu - before.main_cpu - _dumping(interval)


def _exchanges(before: TreeReading, after: TreeReading, interval: Interval) -> bool:
    """Return whether the main thread printed or read something, or its process waits for the network or used it."""
    printed = after.main_bytes - before.main_bytes > (interval.dumped or 0)
    return printed or _waits_for(after, _NETWORK) or _traffic(before.main_traffic, after.main_traffic) > 0


def _works(before: TreeReading, after: TreeReading, interval: Interval) -> bool:
    others = (after.cpu - before.cpu) - (after.main_cpu - before.main_cpu)
    return others > _BUSY * interval.seconds + _dumping(interval) or _acts(before, after, interval)


def _acts(before: TreeReading, after: TreeReading, interval: Interval) -> bool:
    """Return whether something works for it, by other signs than CPU time."""
    if after.traced or _BLOCKED in after.states or _waits_for(after, _STORAGE):
        return True
    if after.processes != before.processes or after.faults - before.faults > _FAULTS:
        return True  # less CPU time than before would also mean that a child has ended
    most = _BYTES * interval.seconds
    moved = after.bytes - before.bytes - (interval.dumped or 0)
    return moved > most or _traffic(before.traffic, after.traffic) > most


def _dumping(interval: Interval) -> float:
    return 0.0 if interval.dumped is None else _DUMPING


def _waits_for(reading: TreeReading, names: tuple[str, ...]) -> bool:
    return any(name in function for function in reading.waits for name in names)


def _traffic(before: Mapping[int, int] | None, after: Mapping[int, int] | None) -> int:
    """Return the bytes that the connections moved; what a closed connection had moved at last is unknown."""
    if before is None or after is None:
        return 0
    return sum(max(0, moved - before.get(inode, 0)) for inode, moved in after.items())
