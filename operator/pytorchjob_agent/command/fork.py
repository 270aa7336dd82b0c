"""Starts a process below this one, which then stays to supervise it (`first_process`).

The launcher works there, and waits for nothing that this process imports: so this file imports next to nothing.
"""

import os
from _signal import (  # type: ignore[import-not-found]  # `signal` imports `enum`
    SIG_BLOCK,
    SIG_UNBLOCK,
    SIGCHLD,
    SIGHUP,
    SIGINT,
    SIGKILL,
    SIGQUIT,
    SIGTERM,
    pthread_sigmask,
)

from pytorchjob_agent.command.below import Below

WATCHED = (SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGCHLD)
"""The signals of the first process: blocked and waited for, so that none is lost at any time."""


def run() -> "int | Below":
    """Return at once in a process below this one; here return the exit code, once nothing is left below."""
    deaths = 0
    while True:
        receive, send = os.pipe()
        os.set_blocking(receive, False)
        pthread_sigmask(SIG_BLOCK, WATCHED)
        pid = os.fork()
        if pid == 0:
            os.close(receive)
            os.setpgid(0, 0)  # a terminal's Ctrl-C reaches only the parent, which forwards it once
            pthread_sigmask(SIG_UNBLOCK, WATCHED)
            return Below(send)
        os.close(send)
        code = _supervise(pid, receive, deaths)
        os.close(receive)
        if code is not None:
            return code
        deaths += 1


def _supervise(pid: int, receive: int, deaths: int) -> "int | None":
    """Return the exit code; None if another process has to be started. A defect must not run the program twice."""
    try:
        from pytorchjob_agent.command import first_process

        return first_process.supervise(pid, receive, deaths)
    except BaseException:
        import traceback

        traceback.print_exc()
        os.kill(pid, SIGKILL)
        os._exit(1)
