"""Signals of the first process: blocked and waited for, so that none is lost before, between or after rendezvous.

A blocked signal also reaches PID 1, where the kernel drops what has no handler.
"""

import signal

LEAVE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_WATCHED = (*LEAVE, signal.SIGCHLD)


def block() -> None:
    """Hold the signals back from now on, until `wait` takes them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)


def wait(timeout: float) -> int | None:
    """Return the next signal to leave, or None after the timeout or when a child ended."""
    taken = signal.sigtimedwait(_WATCHED, max(timeout, 0.0))
    return taken.si_signo if taken is not None and taken.si_signo in LEAVE else None


def restore() -> None:
    """Give a forked child the kernel's defaults: a signal ends it at once, even inside C++, until torch takes over."""
    for signum in LEAVE:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
