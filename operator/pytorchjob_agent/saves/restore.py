"""Brings the save that the coordinator chose to this member before workers start: from its memory, from peers, or from
the durable directory.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pytorchjob_agent.contract.held_saves import Choice
from pytorchjob_agent.saves import copies
from pytorchjob_agent.saves.durable_tier import DurableTier
from pytorchjob_agent.saves.held import FullError, HeldSaves, SourceError
from pytorchjob_agent.saves.manifest import Manifest, ManifestError
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.round_keys import RoundKeys
from pytorchjob_agent.saves.wire import PeerRefusedError

HOLDER_SECONDS = 30.0
"""How long a member waits for a peer that holds a part."""
PUBLISHED_SECONDS = 5.0
"""How long it waits until all members have published what they hold, before it reads the durable directory."""
_PAUSE = 0.05
_AT_ONCE = 4


class MissingError(Exception):
    """A part of the chosen save cannot be had; the text has the reasons."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where parts may be had besides this member's memory."""

    keys: RoundKeys
    """The round's."""
    peers: Callable[[], Sequence[Peer]]
    """Returns the other members that have published what they hold, so far."""
    others: int
    """How many other members there are."""
    durable: DurableTier | None
    goes_on: Callable[[], bool]
    """False: the round has ended."""


class Fetching:
    """Fetches the parts of one chosen save."""

    def __init__(self, held: HeldSaves, choice: Choice, sources: Sources) -> None:
        """Prepare."""
        self._held, self._choice, self._sources = held, choice, sources
        self._store = threading.Lock()

    def all(self) -> list[Manifest]:
        """Return all parts, once they are held here. Raises MissingError and RuntimeError."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._part, self._choice.owners))

    def _part(self, owner: int) -> Manifest:
        found = self._held.part(self._choice, owner)
        if found is not None:
            return found
        started, tried, reasons = time.monotonic(), set[int](), list[str]()
        reads = self._sources.durable is not None and self._sources.durable.offers(self._choice, owner)
        while self._sources.goes_on() and time.monotonic() - started < HOLDER_SECONDS:
            peers = self._peers()
            for peer in peers:
                if peer.rank not in tried and peer.has(self._choice, owner) is not None:
                    tried.add(peer.rank)
                    if (found := self._ask(peer, owner, reasons)) is not None:
                        return found
            waited = time.monotonic() - started > PUBLISHED_SECONDS
            if reads and (waited or len(peers) == self._sources.others):
                reads = False
                if (found := self._read(owner, reasons)) is not None:
                    return found
            if tried and not reads and len(tried) == self._sources.others:
                break
            time.sleep(_PAUSE)
        raise MissingError("; ".join(reasons)[:1000] or f"no member offers the part of rank {owner}")

    def _peers(self) -> Sequence[Peer]:
        with self._store:
            return self._sources.peers()

    def _ask(self, peer: Peer, owner: int, reasons: list[str]) -> Manifest | None:
        id_ = peer.has(self._choice, owner)
        assert id_ is not None
        try:
            address = (peer.address, peer.port)
            return copies.get(self._held, id_, address, self._sources.keys, self._sources.goes_on)
        except (PeerRefusedError, ManifestError, FullError, OSError) as error:
            reasons.append(f"node {peer.rank}: {error}")
            return None

    def _read(self, owner: int, reasons: list[str]) -> Manifest | None:
        assert self._sources.durable is not None
        try:
            return self._sources.durable.fetch(self._choice, owner, self._sources.goes_on)
        except (SourceError, FullError, OSError) as error:
            reasons.append(f"the durable directory: {error}")
            return None
