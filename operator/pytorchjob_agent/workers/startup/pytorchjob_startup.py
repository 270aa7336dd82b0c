"""What a worker does before its script: it gets ready to write its stacks when its agent asks for them.

Imports nothing of this package, which the worker's Python may not find.
"""

import faulthandler
import fcntl
import os
import signal

STACKS = "PYTORCHJOB_STACKS"  # the file to write to
# Nobody else's: SIGUSR1 and SIGUSR2 belong to scripts and to batch systems.
SIGNAL = getattr(signal, "SIGRTMIN", signal.SIGTERM) + 6
_LOWEST = 200


def register() -> bool:
    """Make the signal write the stacks of all threads to the file that the environment names; whether it could."""
    path = os.environ.get(STACKS)
    if not path or not hasattr(faulthandler, "register"):
        return False
    try:
        low = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        # Scripts close and take low numbers, and a stack in somebody's checkpoint would be worse than none.
        file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
        os.close(low)
        faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)
    except (OSError, ValueError, RuntimeError):
        return False
    return True
