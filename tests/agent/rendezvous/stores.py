"""The store of a round, in memory: what members need of torch's store."""

from pytorchjob_agent.rendezvous.agreement import PeerHeartbeats


class Store(dict[str, bytes]):
    """A store in memory."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self[key] for key in keys]

    def multi_set(self, keys: list[str], values: list[str]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)


def others_still_for(heartbeats: PeerHeartbeats, now: float) -> float | None:
    """For how long all other members have been still; None: not known here."""
    others = heartbeats.others(now)
    return None if others is None else min(other.still for other in others)
