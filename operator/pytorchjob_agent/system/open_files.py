"""How many files this process may open: many container runtimes allow 1,024, which 200 workers exceed."""

import resource
from contextlib import suppress

_OWN = 256
"""Descriptors of the agent itself."""
_PER_WORKER = 8
"""Two ends of two pipes, a pidfd, the fork server's channel, and some that are open for a moment."""


def allow_for(workers: int) -> None:
    """Raise the limit if these workers need more, as far as this process may. The workers inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OWN + _PER_WORKER * workers
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and wanted > soft:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
