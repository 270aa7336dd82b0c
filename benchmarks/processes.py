"""What the kernel says of one process: memory and CPU."""

import os
from pathlib import Path


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """A field of /proc/PID/status in MB (10^6 bytes); VmHWM is the highest that VmRSS has been."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(kilobytes) * 1024 / 1e6


def cpu_seconds(pid: int) -> float:
    """CPU time of all its threads so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def exact_cpu_seconds(pid: int) -> float:
    """CPU time of the threads that it has now, by the scheduler's own count: not in ticks, which rests are lost in."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def waited_seconds(pid: int) -> float:
    """For how long its present threads could run and had no processor, by the scheduler's own count."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[1]) for thread in threads) / 1e9
