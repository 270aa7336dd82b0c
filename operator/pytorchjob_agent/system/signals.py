"""Signals of the pod's first process, which `command/fork` has blocked: waited for, so that none is lost at any time.

A blocked signal also reaches PID 1, for which the kernel drops signals without a handler.
"""

import signal

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_WATCHED = (*STOP_SIGNALS, signal.SIGCHLD)


def wait(timeout: float) -> int | None:
    """Return the next stop signal, or None when a child ends or after `timeout` seconds."""
    taken = signal.sigtimedwait(_WATCHED, max(timeout, 0.0))
    return taken.si_signo if taken is not None and taken.si_signo in STOP_SIGNALS else None


def restore() -> None:
    """Restore the kernel's defaults in a forked child: a signal ends it at once, until torch takes over."""
    for signum in STOP_SIGNALS:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
