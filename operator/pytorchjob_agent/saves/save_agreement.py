"""How the members of a round agree on the save that all of them start with, and prove that each has its files.

Each member publishes what it offers. Rank 0 decides and publishes the decision. Each member carries it out and reports.
Rank 0 publishes that all may start, or why none does. Workers start only after that. It is the same with and without a
coordinator, and needs nothing but the round's store.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence

from pytorchjob_agent.rendezvous.extension import NotStartedError, RoundEndedError
from pytorchjob_agent.rendezvous.published import Published
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.saves import round_start
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.round_start import Start

_START, _RESTORED, _FAILED, _GO = "start", "restored", "failed", "go-ahead"
_OFFER_SECONDS = 60.0
"""How long rank 0 waits for what the others offer."""
_RESTORE_SECONDS = 1800.0
"""How long it waits until all have their files. With a coordinator, a member that is lost ends the round before."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1
_ALL_WELL = "ok"


class SaveAgreement:
    """One member's part in the agreement of one round. Each call may raise RuntimeError: the store is gone."""

    def __init__(
        self, store: SignedStore, goes_on: Callable[[], bool], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """`goes_on`: False once the round has ended. `sleep` pauses between two reads of the store, for seconds."""
        self._store, self._goes_on, self._sleep = store, goes_on, sleep
        self._peers = Published(store, "saves", Peer.from_json)
        self._read: dict[int, Peer] = {}
        self._lock = threading.Lock()
        """Threads fetch several parts at once, by one connection to the store."""

    def decide(self, offer: Peer) -> Start:
        """Publish what this member offers; return the decision. Raises NotStartedError."""
        self._peers.write(offer.to_json())
        assigned = self._store.assigned
        if assigned.rank == 0:
            ranks = range(assigned.size)
            keys = [f"saves/{rank}" for rank in ranks]
            self._await(lambda: self._store.has_all(keys, ranks), _OFFER_SECONDS)
            offers = [offer, *self.peers(range(1, assigned.size))]
            self._store.write(_START, round_start.decide(offers, assigned.round).to_json())
        self._await(lambda: self._store.read(_START, 0) is not None, 2 * _OFFER_SECONDS)
        found = self._store.read(_START, 0)
        assert found is not None
        try:
            return Start.from_json(found.value)
        except ValueError as error:
            raise NotStartedError(f"rank 0's decision cannot be read: {error}") from None

    def peers(self, ranks: Sequence[int]) -> list[Peer]:
        """Return what these members published before the decision. Raises NotStartedError."""
        with self._lock:
            missing = [rank for rank in ranks if rank not in self._read]
            for rank, peer in self._peers.read(missing).items():
                if peer is None:
                    raise NotStartedError(f"what node {rank} offers cannot be read: its agent has another version")
                self._read[rank] = peer
            return [self._read[rank] for rank in ranks if rank in self._read]

    def others(self, left: Collection[int] = ()) -> list[Peer]:
        """Return all other members but those that have left the round."""
        own, size = self._store.assigned.rank, self._store.assigned.size
        return self.peers([rank for rank in range(size) if rank != own and rank not in left])

    def enter(self, offer: Peer) -> None:
        """Publish where this member is, which comes into a round that runs: it keeps copies from now on."""
        self._peers.write(offer.to_json())

    def forget(self, ranks: Collection[int]) -> None:
        """Read anew what these members publish: another pod may have come in as each of them."""
        with self._lock:
            for rank in ranks:
                self._read.pop(rank, None)

    def confirm(self, failure: str) -> None:
        """Report that this member has its files, or why not; return once all members have theirs.

        Raises NotStartedError if any has not.
        """
        assigned = self._store.assigned
        if failure:
            self._store.write(_FAILED, failure[:1000])
            raise NotStartedError(failure)
        self._store.write(f"{_RESTORED}/{assigned.rank}", _ALL_WELL)
        if assigned.rank == 0:
            ranks = range(assigned.size)
            keys = [f"{_RESTORED}/{rank}" for rank in ranks]
            self._await(lambda: self._store.has_all(keys, ranks), _RESTORE_SECONDS)
            self._store.write(_GO, _ALL_WELL)
        self._await(lambda: self._store.read(_GO, 0) is not None, _RESTORE_SECONDS + _OFFER_SECONDS)

    def goes_on(self) -> bool:
        """Return whether the round goes on, and all members may still get their files."""
        if not self._goes_on():
            return False
        with self._lock:
            return self._store.read(_FAILED) is None

    def _await(self, is_there: Callable[[], bool], longest: float) -> None:
        """Wait until something is in the store. Raises NotStartedError."""
        pause, since = _FIRST_PAUSE, time.monotonic()
        while not is_there():
            if not self._goes_on():
                raise RoundEndedError(f"round {self._store.assigned.round} has ended before its workers started")
            if (failed := self._store.read(_FAILED)) is not None:
                raise NotStartedError(f"node {failed.rank}: {failed.value}")
            if time.monotonic() - since > longest:
                raise NotStartedError(f"a member has published nothing for {longest:.0f} s")
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
