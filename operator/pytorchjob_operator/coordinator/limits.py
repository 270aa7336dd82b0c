"""How much of the coordinator any peer may use: pods of users connect to it, and it serves all jobs. Pure.

`Limits.within` derives the numbers from the memory and the open files that the process may have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from pytorchjob_agent.contract.messages import HELLO_LIMIT
from pytorchjob_agent.contract.unauthenticated import EntryStage

MIB = 1024 * 1024
LINK_BYTES = 40 * 1024
"""Memory of one agent's connection with TLS and what is stored about the agent, with the usual messages."""
_MEMORY_SHARE = 0.4
"""The part of the process's memory that connections may take. The caches and the libraries need the rest."""
_HELD_SHARE = 0.1
"""The part of the process's memory that messages may take which are incomplete or which a peer has not read."""
_STAGE_SHARE = 0.05
"""The part of the process's memory that the unauthenticated connections of one stage may take."""
_STAGES = {
    EntryStage.SILENT: (8192, 4, 2 * 1024),
    EntryStage.STARTED: (4096, 8, 6 * 1024),
    EntryStage.COSTLY: (1024, 16, LINK_BYTES),
}
"""For each stage the most connections, the part of the open files that they may have, and the bytes of one."""
_MOST_CONNECTIONS = 20_000
_MOST_HELD = 64 * MIB
_OTHER_FILES = 256
"""Descriptors for everything but agents: the API server, logs, pipes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits. The defaults suit a process without a memory limit."""

    connections: int = _MOST_CONNECTIONS
    """Connections with an accepted hello, of all jobs."""
    namespace_share: float = 0.75
    """The part of the connections, and of the held bytes, that jobs of one namespace may use."""
    unauthenticated: Mapping[EntryStage, int] = field(
        default_factory=lambda: {stage: most for stage, (most, _, _) in _STAGES.items()}
    )
    """Connections without an accepted hello, by their stage. The next one displaces another one."""
    hello: float = 5.0
    """Seconds for TLS and the first line together."""
    hello_bytes: int = HELLO_LIMIT
    """Bytes of the first line."""
    spare_links: int = 16
    """Connections of one job beyond two for each pod."""
    rate: float = 50.0
    """Messages per second of one connection, on average."""
    burst: float = 200.0
    """Messages of one connection at once."""
    unread: int = 64 * 1024
    """Bytes that a peer may leave unread before its connection is dropped."""
    held: int = _MOST_HELD
    """Bytes of incomplete and unread messages of all connections. A connection with a few of them does not count."""
    farewell: float = 5.0
    """Seconds for the last messages of a connection."""

    @classmethod
    def within(cls, memory: int | None, files: int) -> Self:
        """Return the limits for a process with this much memory in bytes (None: no limit) and this many open files."""
        files = max(files - _OTHER_FILES, 64)
        stages = {stage: min(most, files // part) for stage, (most, part, _) in _STAGES.items()}
        connections, held = min(_MOST_CONNECTIONS, files - sum(stages.values())), _MOST_HELD
        if memory is not None:
            each = memory * _STAGE_SHARE
            stages = {stage: min(most, max(int(each / _STAGES[stage][2]), 16)) for stage, most in stages.items()}
            connections = min(connections, max(int(memory * _MEMORY_SHARE) // LINK_BYTES, 64))
            held = min(held, max(int(memory * _HELD_SHARE), MIB))
        return cls(connections=connections, unauthenticated=stages, held=held)

    def of_namespace(self, number: int) -> int:
        """Return the part of a number that the jobs of one namespace may use."""
        return int(number * self.namespace_share)

    def links(self, pods: int) -> int:
        """Return the connections of a job with this many pods: each may have a new one beside a dead one."""
        return 2 * pods + self.spare_links


class Bucket:
    """Counts the messages of one connection against its rate."""

    __slots__ = ("_burst", "_left", "_rate", "_since")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        """Start with the whole burst."""
        self._rate, self._burst = rate, burst
        self._left, self._since = burst, now

    def take(self, now: float) -> bool:
        """Spend one message. False: none is left."""
        self._left = min(self._burst, self._left + (now - self._since) * self._rate)
        self._since = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
