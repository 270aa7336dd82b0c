"""Reads the CPU and memory limits of this container's cgroup, version 1 or 2; None without a limit or a cgroup."""

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60  # version 1 writes a number near 2**63 where there is no limit


def cpus(root: Path = _ROOT, own: Path = _OWN) -> float | None:
    """Return how many CPUs may be used at once: the lowest limit of this cgroup and its parents."""
    limits = [_quota(*text.split()[:2]) for text in _texts(root, own, "", "cpu.max")]
    for folder in _folders(root, own, "cpu"):
        limits.append(_quota(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")))
    return min((limit for limit in limits if limit is not None), default=None)


def memory(root: Path = _ROOT, own: Path = _OWN) -> int | None:
    """Return the memory limit in bytes: the lowest of this cgroup and its parents."""
    texts = [*_texts(root, own, "", "memory.max"), *_texts(root, own, "memory", "memory.limit_in_bytes")]
    return min((int(text) for text in texts if text.isdigit() and int(text) < _UNLIMITED), default=None)


def _quota(quota: str, period: str = "100000") -> float | None:
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None  # `max`, -1, or no such file
    return int(quota) / int(period)


def _texts(root: Path, own: Path, controller: str, name: str) -> list[str]:
    return [text for folder in _folders(root, own, controller) if (text := _read(folder / name))]


def _folders(root: Path, own: Path, controller: str) -> Iterator[Path]:
    """Yield the cgroup of this process and its parents; an empty controller is version 2.

    In a container the path may be the host's: then only the topmost folder exists, and belongs to the container.
    """
    for line in _read(own).splitlines():
        _, names, path = (*line.split(":", 2), "", "")[:3]
        if controller not in names.split(","):
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for end in range(len(parts), -1, -1):
            yield (root / controller).joinpath(*parts[:end])


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
