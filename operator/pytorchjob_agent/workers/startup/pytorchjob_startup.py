"""Runs in a worker before its script: installs the signal handler that writes stacks (see `hangs/stack_dump`).

It imports nothing else of the agent, because the worker's Python may not find the package.
"""

import faulthandler
import fcntl
import os
import signal

STACKS = "PYTORCHJOB_STACKS"  # the file to write to
# SIGUSR1 and SIGUSR2 belong to scripts and to batch systems.
SIGNAL = getattr(signal, "SIGRTMIN", signal.SIGTERM) + 6
_LOWEST = 200


def register() -> bool:
    """Install the handler that writes all threads' stacks to the file named by the environment; True on success."""
    path = os.environ.get(STACKS)
    if not path or not hasattr(faulthandler, "register"):
        return False
    try:
        low = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        # Scripts close and reuse low descriptors, and a stack written into a checkpoint would be worse than none.
        file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
        os.close(low)
        faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)
    except (OSError, ValueError, RuntimeError):
        return False
    return True
