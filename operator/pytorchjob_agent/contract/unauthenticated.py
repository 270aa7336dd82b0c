"""Connections that have not proved themselves: how many there may be, and which goes if there are more. Pure.

The coordinator's port and the open ports of an agent have this rule. A connection passes through the stages. Each stage
has a limit of its own, so that silent peers cannot displace a peer that makes progress. A connection that enters a full
stage displaces the oldest one of the address that has most of them. So a flood displaces itself. An honest connection
needs milliseconds for a stage that a flood needs longer to fill.
"""

from collections.abc import Hashable, Iterator, Mapping
from enum import Enum
from ipaddress import IPv6Address
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class EntryStage(Enum):
    """How far a connection is. The order is that of progress."""

    SILENT = "silent"
    """It has sent nothing: a socket and nothing else."""
    STARTED = "started"
    """It has sent the beginning of its first message: a kilobyte at most."""
    COSTLY = "costly"
    """It has a TLS session, or has sent more than a kilobyte."""


class Shares(Generic[Item]):
    """The connections of one stage by address. Every method takes constant time."""

    def __init__(self) -> None:
        """Start without connections."""
        self._items: dict[str, dict[Item, None]] = {}
        """The oldest first."""
        self._by_count: dict[int, dict[str, None]] = {}
        """The addresses with this number of connections."""
        self._largest = 0
        self._length = 0

    def __len__(self) -> int:
        """Return the number of connections."""
        return self._length

    def add(self, address: str, item: Item) -> None:
        """Add a connection: the newest of its address."""
        items = self._items.setdefault(address, {})
        items[item] = None
        self._length += 1
        self._move(address, len(items) - 1, len(items))
        self._largest = max(self._largest, len(items))

    def remove(self, address: str, item: Item) -> None:
        """Remove a connection."""
        items = self._items[address]
        del items[item]
        self._length -= 1
        if not items:
            del self._items[address]
        self._move(address, len(items) + 1, len(items))
        if self._largest not in self._by_count:
            self._largest -= 1

    def first_to_go(self) -> Item:
        """Return the oldest connection of the address that has most of them."""
        address = next(iter(self._by_count[self._largest]))
        return next(iter(self._items[address]))

    def _move(self, address: str, old: int, new: int) -> None:
        if old:
            addresses = self._by_count[old]
            del addresses[address]
            if not addresses:
                del self._by_count[old]
        if new:
            self._by_count.setdefault(new, {})[address] = None


class Unauthenticated(Generic[Item]):
    """All connections without an accepted hello."""

    def __init__(self, limits: Mapping[EntryStage, int]) -> None:
        """`limits` has the largest number of connections of each stage."""
        self._limits = limits
        self._stages: dict[EntryStage, Shares[Item]] = {stage: Shares() for stage in EntryStage}
        self._where: dict[Item, tuple[EntryStage, str]] = {}
        self.displaced = 0
        """Connections that had to make room for others since the start."""

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._where)

    def __iter__(self) -> Iterator[Item]:
        """Yield all connections."""
        return iter(tuple(self._where))

    def stage(self, item: Item) -> EntryStage | None:
        """Return how far a connection is. None: it is not one of these."""
        found = self._where.get(item)
        return found[0] if found else None

    def add(self, item: Item, address: str) -> Item | None:
        """Add a connection that has sent nothing; return the one that it displaces, which is removed."""
        return self._enter(item, EntryStage.SILENT, group(address))

    def advance(self, item: Item, stage: EntryStage) -> Item | None:
        """Move a connection to a later stage; return the one that it displaces, which is removed."""
        found = self._where.get(item)
        if found is None or found[0] is stage:
            return None
        self.remove(item)
        return self._enter(item, stage, found[1])

    def remove(self, item: Item) -> bool:
        """Remove a connection. False: it is not one of these."""
        found = self._where.pop(item, None)
        if found is not None:
            self._stages[found[0]].remove(found[1], item)
        return found is not None

    def displace(self) -> Item | None:
        """Remove a connection because the process needs its descriptor: the least advanced ones go first."""
        for shares in self._stages.values():
            if len(shares):
                return self._displace(shares)
        return None

    def _enter(self, item: Item, stage: EntryStage, address: str) -> Item | None:
        shares = self._stages[stage]
        displaced = self._displace(shares) if len(shares) >= self._limits[stage] else None
        shares.add(address, item)
        self._where[item] = (stage, address)
        return displaced

    def _displace(self, shares: Shares[Item]) -> Item:
        self.displaced += 1
        item = shares.first_to_go()
        self.remove(item)
        return item


def group(address: str) -> str:
    """Return what counts as one address: for IPv6 the network of 64 bits, because a machine may have all of it."""
    if ":" not in address:
        return address
    number = int(IPv6Address(address.partition("%")[0]))
    return f"{number >> 64:x}"
