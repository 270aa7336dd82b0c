"""What this process may use: the memory limit of its container, and its open files."""

import logging
import resource
from contextlib import suppress
from pathlib import Path

from pytorchjob_operator.coordinator.limits import Limits

_log = logging.getLogger(__name__)
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""As cgroup v2 and v1 show it to a container."""
_NO_LIMIT = 2**60
_ENOUGH_FILES = 65_536


def find_limits() -> Limits:
    """Return the coordinator's limits on this machine. Allows this process more open files where it may have them."""
    limits = Limits.within(memory_limit(), raise_open_files())
    _log.info("the coordinator accepts up to %d agents", limits.connections)
    return limits


def memory_limit(files: tuple[Path, ...] = _MEMORY_LIMITS) -> int | None:
    """Return the memory limit of this container in bytes; None if there is none."""
    for path in files:
        with suppress(OSError, ValueError):  # ValueError: cgroup v2 writes "max"
            limit = int(path.read_text())
            return limit if limit < _NO_LIMIT else None
    return None


def raise_open_files() -> int:
    """Raise the number of files that this process may open, as far as it may and needs it; return the number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _ENOUGH_FILES
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if wanted > soft:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return soft
