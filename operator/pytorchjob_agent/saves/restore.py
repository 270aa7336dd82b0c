"""Brings the save that the coordinator chose to this member before workers start: from its memory, from peers, or from
the durable directory.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from pytorchjob_agent.exchange.file_list import ManifestError
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.exchange.wire import UNLIMITED, PeerRefusedError, TransferPace
from pytorchjob_agent.saves import copies
from pytorchjob_agent.saves.copies import MOST_CONNECTIONS, NotHeldError, Receiving
from pytorchjob_agent.saves.durable_tier import DurableTier
from pytorchjob_agent.saves.held import FullError, HeldSaves, SourceError
from pytorchjob_agent.saves.held_saves import Choice
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.peers import Peer

HOLDER_SECONDS = 30.0
"""How long a member tries to get a part while none of those that hold it answers with it."""
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class MissingError(Exception):
    """A part of the chosen save cannot be had; the text has the reasons."""


@dataclass(frozen=True, slots=True)
class PartSources:
    """Where parts may be had besides this member's memory."""

    keys: RoundKeys
    """The round's."""
    peers: Callable[[int], Sequence[Peer]]
    """Returns the members to ask for the part of an owner, in this order: the last ones hold it."""
    durable: DurableTier | None
    goes_on: Callable[[], bool]
    """False: the round has ended, or another member cannot have its files."""
    pace: TransferPace = UNLIMITED
    """Of parts that peers send: the workers wait for those that a round starts with."""


class Fetching:
    """Fetches the parts of one chosen save that this member needs."""

    def __init__(self, held: HeldSaves, choice: Choice, sources: PartSources) -> None:
        """Prepare."""
        self._held, self._choice, self._sources = held, choice, sources

    def all(self, owners: Sequence[int]) -> list[Manifest]:
        """Return the parts of these owners, once they are held here. Raises MissingError and RuntimeError."""
        at_once = min(len(owners), MOST_CONNECTIONS)
        with ThreadPoolExecutor(max(at_once, 1)) as pool:
            return list(pool.map(partial(self._part, connections=MOST_CONNECTIONS // max(at_once, 1)), owners))

    def _part(self, owner: int, connections: int) -> Manifest:
        found = self._held.part(self._choice, owner)
        if found is not None:
            return found
        peers, reasons = self._sources.peers(owner), dict[str, None]()
        since, pause = time.monotonic(), _PAUSE
        while self._sources.goes_on():
            try:
                found = self._ask(peers, owner, connections, reasons)
            except NotHeldError:
                since = time.monotonic()  # a member above that cannot have the part ends the round
            if (found := found or self._read(owner, reasons)) is not None:
                return found
            if not peers or time.monotonic() - since > HOLDER_SECONDS:
                break
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise MissingError("; ".join(reasons)[:1000] or f"no member offers the part of rank {owner}")

    def _ask(self, peers: Sequence[Peer], owner: int, connections: int, reasons: dict[str, None]) -> Manifest | None:
        """Return the part from the first of these members that has it; None: none answers with it.

        Raises NotHeldError if a member above is still to get it: those that hold it must not serve all others.
        """
        for peer in peers:
            try:
                return self._get(peer, owner, connections)
            except (PeerRefusedError, ManifestError, FullError, OSError) as error:
                if isinstance(error, NotHeldError) and not peer.holds(self._choice)[0] >> owner & 1:
                    raise
                reasons[f"node {peer.rank}: {error}"] = None
        return None

    def _get(self, peer: Peer, owner: int, connections: int) -> Manifest:
        address = (peer.address, peer.port, peer.rank)
        how = Receiving(self._sources.goes_on, self._sources.pace, connections)
        return copies.get(self._held, self._choice, owner, address, self._sources.keys, how)

    def _read(self, owner: int, reasons: dict[str, None]) -> Manifest | None:
        durable = self._sources.durable
        if durable is None or not durable.offers(self._choice, owner):
            return None
        try:
            return durable.fetch(self._choice, owner, self._sources.goes_on)
        except (SourceError, FullError, OSError) as error:
            reasons[f"the durable directory: {error}"] = None
            return None
