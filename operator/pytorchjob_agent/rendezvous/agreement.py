"""What members write to the store of their round and read from it: heartbeats, requests, agreement on the next round.

Pure: the store and the time are arguments. Rank 0's agent keeps the store. Every call of it may raise RuntimeError
(torch's DistError and its subclasses) when that agent cannot be reached. `signed_store` drops what no member wrote.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytorchjob_agent.contract.fields import MAX_COUNT
from pytorchjob_agent.contract.messages import HEARTBEAT_SECONDS, Assigned, RoundId
from pytorchjob_agent.rendezvous.contact import Contact
from pytorchjob_agent.rendezvous.signed_store import SignedStore, next_secret

_OPENED, _RESTART, _AGREED, _COUNTED = "opened", "wanted", "go", "counted"
_MAX_PORT = 65535
_MOST_PARTS = 4
NOTE_LIMIT = 2048
"""Characters of what a member tells of its workers; a longer note is left out."""
_NOTE = re.compile(r"[0-9a-f.=|]*")
SEND_SECONDS = 0.5 * HEARTBEAT_SECONDS
"""How often a member writes its heartbeat and reads a sign of life of rank 0."""
READ_SECONDS = 0.5 * SEND_SECONDS
"""How often rank 0 reads the others' heartbeats. Its store is in the same process, so a read costs little."""
_READ_SHARE = READ_SECONDS / 1000
"""In rounds of more than a thousand members it reads less often: once in this time for each of them."""
HEARD_SECONDS = 2 * HEARTBEAT_SECONDS
"""A sign of life is reported while it is younger than this."""
_STILL_SECONDS = 5.0
"""What a peer reports of its workers holds for this long."""
_LONGEST_VALUE = 56 + NOTE_LIMIT
_LONGEST_NUMBER = 16
_ENTRY = 10**9
"""Counters only grow: a member that comes back into its round counts on above the one whose place it takes."""
_ENDLESS = 10**9
"""Stands for infinity: the workers of a member have ended."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The peers that were heard lately, as a heartbeat of the agent reports them."""

    ranks: tuple[int, ...] = ()
    ages: tuple[int, ...] = ()
    """For each rank, how old its last sign of life is at most: tenths of a second, rounded up."""
    round: RoundId | None = None
    """The round of these ranks; None if nothing was heard."""


class StoreHeartbeat(NamedTuple):
    """What one member writes for rank 0."""

    number: int
    """How many it has written."""
    still: int = 0
    """For how many seconds its workers have been still."""
    contact_age: int | None = None
    """How many seconds ago it last heard from the control plane."""
    note: str = ""
    """What else it tells of its workers."""


class MemberStanding(NamedTuple):
    """Whether the workers of one member make progress."""

    still: float = 0.0
    """For how many seconds they have been still; infinity: they have ended."""
    note: str = ""
    """What else the member tells of them; empty: nothing."""


_MOVES = MemberStanding()
"""Of a member of which nothing is known."""


class PeerHeartbeats:
    """The heartbeats of one round's members.

    A peer has certainly lived at the time that is kept for it. So an answer counts from the time of its request, and a
    changed counter from the read before: a report must never make a dead peer seem alive.
    """

    def __init__(self, assigned: Assigned, now: float) -> None:
        """Start; rank 0 has called `prepare` before."""
        self._assigned = assigned
        self._sent = _ENTRY * assigned.enters
        self._counters: list[int] = []
        self._read_at = now
        self._lived_at: dict[int, float] = {}
        self._contact = now
        self._standings: dict[int, tuple[MemberStanding, float]] = {}
        self.standing = MemberStanding()
        """Of the workers here: the heartbeats report it to rank 0."""
        self.control_plane = Contact(now)
        self.restart: str | None = None
        """Why a member asks for a restart that the coordinator did not command."""
        self.left: frozenset[int] = frozenset()
        """Ranks of members that have left the round."""

    @property
    def seconds(self) -> float:
        """How often to exchange."""
        return SEND_SECONDS if self._assigned.rank else max(READ_SECONDS, _READ_SHARE * self._assigned.size)

    def heard(self, now: float) -> Heard:
        """Return the ranks that were heard in the last two seconds, each with the age of its sign of life."""
        ages = {rank: now - at for rank, at in sorted(self._lived_at.items()) if now - at < HEARD_SECONDS}
        if not ages:
            return Heard()
        tenths = tuple(math.ceil(10 * max(age, 0.0)) for age in ages.values())
        return Heard(tuple(ages), tenths, self._assigned.round)

    def silence(self, now: float) -> float:
        """Return the seconds since a peer was heard, or the store at a peer answered; 0 for a round of one."""
        return 0.0 if self._assigned.size == 1 else now - self._contact

    def others(self, now: float) -> tuple[MemberStanding, ...] | None:
        """Return the standings of all other members. Only rank 0 knows them; others return None."""
        if self._assigned.rank:
            return None
        ranks = (rank for rank in range(1, self._assigned.size) if rank not in self.left)
        known = (self._standings.get(rank, (_MOVES, now)) for rank in ranks)
        return tuple(standing if now - at < _STILL_SECONDS else _MOVES for standing, at in known)

    def exchange(self, store: SignedStore, clock: Callable[[], float]) -> bool:
        """Send a heartbeat and read the others'; True if a member asks for a restart for the first time.

        The clock is read before the requests, because a call may block for seconds.
        """
        rank, before = self._assigned.rank, clock()
        if rank == 0:
            found = _read_heartbeats(store)
            self._record_standings(found, before)
            self._compare(found, before)
            self.control_plane.publish(store, before)
        else:
            self._sent += 1
            store.write(f"heartbeat/{rank}", self._value(before))
            self.control_plane.ask(store, before)
        asked = store.read(_RESTART)
        if rank:
            self._lived_at[0] = self._contact = before
        if asked is None or self.restart is not None:
            return False
        self.restart = asked.value
        return True

    def _value(self, now: float) -> str:
        still, note = self.standing
        value = f"{self._sent} {int(min(still, _ENDLESS))} {self.control_plane.age(now)}"
        return f"{value} {note}" if note and len(note) <= NOTE_LIMIT else value

    def _record_standings(self, found: Sequence[StoreHeartbeat | None], now: float) -> None:
        """Keep what the peers report. An old value is a replay, or its sender has died."""
        for rank, heartbeat in enumerate(found, 1):
            if heartbeat is not None and heartbeat.number > (self._counters[rank - 1] if self._counters else 0):
                still = math.inf if heartbeat.still >= _ENDLESS else float(heartbeat.still)
                self._standings[rank] = (MemberStanding(still, heartbeat.note), now)

    def _compare(self, found: Sequence[StoreHeartbeat | None], now: float) -> None:
        """Compare the others' counters with those of the read before: each that has grown did so after it.

        Counters only grow: an older value is a replay.
        """
        counters = [None if heartbeat is None else heartbeat.number for heartbeat in found]
        known = self._counters or [0 if new is None else new for new in counters]
        for rank, (old, new) in enumerate(zip(known, counters, strict=True), 1):
            if new is not None and new > old:
                self._lived_at[rank] = self._contact = self._read_at
                heartbeat = found[rank - 1]
                if heartbeat is not None and heartbeat.contact_age is not None:
                    self.control_plane.heard(heartbeat.contact_age, self._read_at)
        self._counters = [old if new is None else max(old, new) for old, new in zip(known, counters, strict=True)]
        self._read_at = now


def prepare(store: SignedStore) -> None:
    """As rank 0: create the counters, so that they can be read all at once, and prove which round the store serves."""
    ranks = _others(store)
    store.prepare(_counter_names(ranks), "0", ranks)
    store.write(_OPENED, "1")


def is_prepared(store: SignedStore) -> bool:
    """Return whether this is the store of this member's round.

    Rank 0 keeps its port while it waits: a member of a round that was superseded finds a later round's store there.
    """
    return store.read(_OPENED, 0) is not None


def _read_heartbeats(store: SignedStore) -> list[StoreHeartbeat | None]:
    ranks = _others(store)
    found = store.read_all(_counter_names(ranks), ranks)
    return [None if signed is None else _read_heartbeat(signed.value) for signed in found]


def _read_heartbeat(value: str) -> StoreHeartbeat | None:
    """Return a member's heartbeat; None for what no member writes."""
    parts, note = value.split(" "), ""
    if len(parts) == _MOST_PARTS:
        note = parts.pop()
    if len(parts) >= _MOST_PARTS or len(value) > _LONGEST_VALUE or not value.isascii() or not _NOTE.fullmatch(note):
        return None
    if not all(part.isdecimal() and len(part) <= _LONGEST_NUMBER for part in parts):
        return None
    number, *more = map(int, parts)
    return StoreHeartbeat(number, more[0] if more else 0, more[1] if more[1:] else None, note)


def _others(store: SignedStore) -> range:
    """Return all ranks but 0: its heartbeat is that its store answers."""
    return range(1, store.assigned.size)


def _counter_names(ranks: Sequence[int]) -> list[str]:
    return [f"heartbeat/{rank}" for rank in ranks]


def ask_for_restart(store: SignedStore, reason: str) -> None:
    """Ask the other members for a restart."""
    store.write(_RESTART, reason[:1024])


def done(store: SignedStore) -> None:
    """Report to the others that the workers here are done."""
    store.write(f"done/{store.assigned.rank}", "1")


def all_done(store: SignedStore) -> bool:
    """Return whether the workers of all members are done."""
    ranks = range(store.assigned.size)
    return store.has_all([f"done/{rank}" for rank in ranks], ranks)


def leave(store: SignedStore) -> None:
    """Report to the store's host that this member no longer needs the store."""
    store.write(f"bye/{store.assigned.rank}", "1")


def all_left(store: SignedStore) -> bool:
    """Return whether no other member needs the store."""
    ranks = _others(store)
    return store.has_all([f"bye/{rank}" for rank in ranks], ranks)


def offer(store: SignedStore, address: str, port: int, restarts: int) -> None:
    """Report to the others that this member waits for a round without the coordinator.

    `restarts`: of the job, as far as this member has heard. The round's own number is older if it has gone on without
    some of its members.
    """
    store.write(f"again/{store.assigned.rank}", json.dumps(_Offer(address, port, restarts)))


def agree(store: SignedStore) -> Assigned | None:
    """Return the round that the members agreed on, once all of them have offered; rank 0 opens it."""
    old = store.assigned
    go = store.read(_AGREED, 0)
    if go is None:
        ranks = range(old.size)
        names = [f"again/{rank}" for rank in ranks]
        if old.rank or not store.has_all(names, ranks):
            return None
        found = [store.read(name, rank) for rank, name in enumerate(names)]
        offers = [_Offer.read(signed.value) for signed in found if signed is not None]
        host, restarts = offers[0], max(old.restarts, *(each.restarts for each in offers))
        store.write(_COUNTED, str(restarts))
        store.write(_AGREED, json.dumps([host.address, host.port]))  # as older agents write and read it
    else:
        host, restarts = _Offer.read(go.value), max(old.restarts, _counted(store))
    id_ = RoundId(old.round.term, old.round.number, old.round.attempt + 1)
    return Assigned(
        round=id_,
        rank=old.rank,
        size=old.size,
        first_rank=old.first_rank,
        world_size=old.world_size,
        master_address=host.address,
        master_port=host.port,
        restarts=restarts + 1,
        reason="agreed on without the coordinator",
        secret=next_secret(old.secret, id_),
        certificate=old.certificate,
        zone=old.zone,
    )


def _counted(store: SignedStore) -> int:
    """Return the restarts that rank 0 has counted; 0: an older agent, which does not say it."""
    found = store.read(_COUNTED, 0)
    digits = found is not None and found.value.isdecimal() and len(found.value) <= _LONGEST_NUMBER
    return int(found.value) if found is not None and digits else 0


class _Offer(NamedTuple):
    """Where a member would serve the next round's store, and the restarts that it has heard of."""

    address: str
    port: int
    restarts: int

    @classmethod
    def read(cls, text: str) -> "_Offer":
        """Read what a member has written; an older agent does not say its restarts. Raises ValueError."""
        address, port, *more = json.loads(text)
        restarts = more[0] if more else 0
        if not isinstance(address, str) or not isinstance(port, int) or not 1 <= port <= _MAX_PORT:
            raise ValueError(f"{text[:80]!r} is not an address and a port")
        if not isinstance(restarts, int) or not 0 <= restarts <= MAX_COUNT:
            raise ValueError(f"{text[:80]!r} has no number of restarts")
        return cls(address, port, restarts)
