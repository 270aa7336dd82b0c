"""How much of the coordinator any peer may use: pods of users connect to it, and it serves all jobs. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits, with room for the largest clusters."""

    connections: int = 20_000
    """Open connections of all jobs. More are closed at once."""
    unauthenticated: int = 256
    """Connections without an accepted hello. Beyond this number, the oldest of them is closed."""
    patience: float = 1.0
    """Seconds for which a new connection waits for room before the oldest unauthenticated one is closed."""
    hello: float = 5.0
    """Seconds for TLS and the first line together."""
    spare_links: int = 16
    """Connections of one job beyond two for each pod."""
    rate: float = 50.0
    """Messages per second of one connection, on average."""
    burst: float = 200.0
    """Messages of one connection at once."""
    unread: int = 256 * 1024
    """Bytes that a peer may leave unread before its connection is dropped."""
    farewell: float = 5.0
    """Seconds for the last messages of a connection."""

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
