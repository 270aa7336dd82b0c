"""The stores of rounds, as torch's TCPStore behaves: in the agent of rank 0, and gone with it."""

from typing import TYPE_CHECKING

from pytorchjob_agent.contract.messages import RoundId

if TYPE_CHECKING:
    from .agent import Agent


class RoundStore:
    """A store at its host."""

    def __init__(self, host: "Agent", id_: RoundId) -> None:
        self.host, self.round = host, id_
        self.closed = False
        self.parts: dict[RoundId, dict[str, bytes]] = {}


class Client:
    """One agent's connection to a store; raises RuntimeError as torch does if the host cannot be reached."""

    def __init__(self, store: RoundStore, agent: "Agent", id_: RoundId) -> None:
        self.store, self._agent, self._part = store, agent, id_

    def _reach(self) -> dict[str, bytes]:
        store, agent = self.store, self._agent
        host = store.host
        if store.closed or host.dead:
            raise RuntimeError("DistNetworkError: connection closed by peer")
        if host is not agent and (host.alone or agent.alone or host.asleep > host.world.clock.now):
            raise RuntimeError("DistStoreError: timed out")
        return store.parts.setdefault(self._part, {})

    def set(self, key: str, value: str) -> None:
        """Write."""
        self._reach()[key] = value.encode()

    def get(self, key: str) -> bytes:
        """Read."""
        return self._reach()[key]

    def check(self, keys: list[str]) -> bool:
        """Return whether all exist."""
        data = self._reach()
        return all(key in data for key in keys)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Read several."""
        data = self._reach()
        return [data[key] for key in keys]

    def multi_set(self, keys: list[str], values: list[str]) -> None:
        """Write several."""
        data = self._reach()
        for key, value in zip(keys, values, strict=True):
            data[key] = value.encode()
