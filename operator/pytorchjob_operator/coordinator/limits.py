"""How much anybody may ask of the coordinator: pods of users talk to it, and it serves every job. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits, with room for the largest clusters."""

    connections: int = 20_000
    """In all; more are closed as they come."""
    strangers: int = 256
    """Connections that have not said who they are; beyond these, the one that takes longest is closed."""
    patience: float = 1.0
    """Seconds that a newcomer waits for a stranger to leave before one is made to: a crowd may come all at once."""
    hello: float = 5.0
    """Seconds for TLS and the first line together."""
    spare_links: int = 16
    """Connections that a job may have beyond two for each of its pods."""
    rate: float = 50.0
    """Messages a second of one connection, over time."""
    burst: float = 200.0
    """Messages of one connection at once."""
    unread: int = 256 * 1024
    """Bytes that a peer may leave unread before it is dropped."""
    farewell: float = 5.0
    """Seconds for the last words to a peer to go out."""

    def links(self, seats: int) -> int:
        """Connections that a job with so many pods may have: a new one of each beside a dead one, and a few."""
        return 2 * seats + self.spare_links


class Bucket:
    """Counts the messages of one connection against its rate."""

    __slots__ = ("_burst", "_left", "_rate", "_since")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        """Begin with the whole burst to spend."""
        self._rate, self._burst = rate, burst
        self._left, self._since = burst, now

    def take(self, now: float) -> bool:
        """Spend one message; False when there is none left to spend."""
        self._left = min(self._burst, self._left + (now - self._since) * self._rate)
        self._since = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
