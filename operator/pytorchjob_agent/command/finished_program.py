"""Remembers that a program of this container has trained to its end in the job's rounds.

A shell may start one program after another. The rounds end with the first one: the coordinator would send a second one
away as finished, and the shell would take it for done. So the second one trains as it would without the agent.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from pytorchjob_agent.contract.coordinator_endpoint import CoordinatorEndpoint

SENTENCE = "a program of this container has trained to its end in the job's rounds already"


def remember(endpoint: CoordinatorEndpoint) -> None:
    """Write that one has."""
    with suppress(OSError):
        fd = os.open(_file(endpoint), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            file.write(_container())


def is_there(endpoint: CoordinatorEndpoint) -> bool:
    """Return whether one has, since the container started: a file of a former container may still be there."""
    with suppress(OSError):
        return _file(endpoint).read_text(encoding="ascii") == _container()
    return False


def _file(endpoint: CoordinatorEndpoint) -> Path:
    return Path(tempfile.gettempdir(), f"pytorchjob-finished-{endpoint.pod}-{endpoint.pod_uid}")


def _container() -> str:
    """Return what tells a container from the one before: its first process leads the session, and has a start time."""
    leader = os.getsid(0)
    with suppress(OSError):
        stat = Path(f"/proc/{leader}/stat").read_text(encoding="ascii", errors="replace")
        return f"{leader} {stat.rpartition(')')[2].split()[19]}"
    return str(leader)
