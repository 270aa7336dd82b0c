"""What members write to the store of their round and read from it: heartbeats, requests, agreement on the next round.

Pure: the store and the time are arguments. Rank 0's agent keeps the store. Every call of it may raise RuntimeError
(torch's DistError and its subclasses) when that agent cannot be reached.
"""

import json
from collections.abc import Callable, Sequence
from typing import Protocol

from pytorchjob_agent.contract.messages import HEARTBEAT_SECONDS, Assigned, RoundId

_RESTART, _AGREED = "wanted", "go"


class Store(Protocol):
    """The part of torch's Store that members use."""

    def set(self, key: str, value: str, /) -> None:
        """Write a key; waits for no answer."""

    def get(self, key: str, /) -> bytes:
        """Read a key that exists."""

    def check(self, keys: list[str], /) -> bool:
        """Return whether all keys exist."""

    def multi_get(self, keys: list[str], /) -> list[bytes]:
        """Read keys that exist."""

    def multi_set(self, keys: list[str], values: list[str], /) -> None:
        """Write keys."""


class PeerHeartbeats:
    """The heartbeats of one round's members: one write and one read a second."""

    def __init__(self, assigned: Assigned, now: float) -> None:
        """Start; rank 0 has called `prepare` before."""
        self._assigned = assigned
        self._sent = 0
        self._counters: Sequence[bytes] = ()
        self._fresh: dict[int, float] = {}
        self._contact = now
        self.restart: str | None = None
        """Why a member asks for a restart that the coordinator did not command."""

    def heard(self, now: float) -> tuple[int, ...]:
        """Return the ranks that were heard in the last two seconds."""
        limit = now - 2 * HEARTBEAT_SECONDS
        return tuple(sorted(rank for rank, at in self._fresh.items() if at > limit))

    def silence(self, now: float) -> float:
        """Return the seconds since a peer was heard, or the store at a peer answered; 0 for a round of one."""
        return 0.0 if self._assigned.size == 1 else now - self._contact

    def exchange(self, store: Store, clock: Callable[[], float]) -> bool:
        """Send a heartbeat and read the others'; True if a member asks for a restart for the first time.

        The clock is read after each answer, because a call may block for seconds.
        """
        rank = self._assigned.rank
        if rank == 0:
            self._compare(_read_counters(store, self._assigned.size), clock())
        else:
            self._sent += 1
            store.set(f"heartbeat/{rank}", str(self._sent))
        asked = store.check([_RESTART])
        if rank:
            self._fresh[0] = self._contact = clock()
        if not asked or self.restart is not None:
            return False
        self.restart = store.get(_RESTART).decode(errors="replace")
        return True

    def _compare(self, counters: Sequence[bytes], now: float) -> None:
        """Compare the others' counters with those of a second ago."""
        for rank, (old, new) in enumerate(zip(self._counters or counters, counters, strict=True), 1):
            if old != new or not self._counters:
                self._fresh[rank] = self._contact = now
        self._counters = counters


def prepare(store: Store, size: int) -> None:
    """Create the counters, so that they can be read all at once."""
    if names := _counter_names(size):
        store.multi_set(names, ["0"] * len(names))


def _read_counters(store: Store, size: int) -> Sequence[bytes]:
    names = _counter_names(size)
    return store.multi_get(names) if names else ()


def _counter_names(size: int) -> list[str]:
    """Return the keys of all ranks but 0: its heartbeat is that its store answers."""
    return [f"heartbeat/{rank}" for rank in range(1, size)]


def ask_for_restart(store: Store, reason: str) -> None:
    """Ask the other members for a restart."""
    store.set(_RESTART, reason[:1024])


def done(store: Store, rank: int) -> None:
    """Report to the others that the workers here are done."""
    store.set(f"done/{rank}", "1")


def all_done(store: Store, size: int) -> bool:
    """Return whether the workers of all members are done."""
    return bool(store.check([f"done/{rank}" for rank in range(size)]))


def leave(store: Store, rank: int) -> None:
    """Report to the store's host that this member no longer needs the store."""
    store.set(f"bye/{rank}", "1")


def all_left(store: Store, size: int) -> bool:
    """Return whether no other member needs the store."""
    return bool(store.check([f"bye/{rank}" for rank in range(1, size)]))


def offer(store: Store, old: Assigned, address: str, port: int) -> None:
    """Report to the others that this member waits for a round without the coordinator."""
    store.set(f"again/{old.rank}", json.dumps([address, port]))


def agree(store: Store, old: Assigned) -> Assigned | None:
    """Return the round that the members agreed on, once all of them have offered; rank 0 opens it."""
    if not store.check([_AGREED]):
        if old.rank or not store.check([f"again/{rank}" for rank in range(old.size)]):
            return None
        address, port = json.loads(store.get("again/0"))
        store.set(_AGREED, json.dumps([address, port]))
    address, port = json.loads(store.get(_AGREED))
    return Assigned(
        round=RoundId(old.round.term, old.round.number, old.round.attempt + 1),
        rank=old.rank,
        size=old.size,
        first_rank=old.first_rank,
        world_size=old.world_size,
        master_address=str(address),
        master_port=int(port),
        restarts=old.restarts + 1,
        reason="agreed on without the coordinator",
    )
