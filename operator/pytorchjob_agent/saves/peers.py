"""What members publish in their round's store about their saves: address, place, directory, held saves; and which peers
keep their copies. Pure."""

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from pytorchjob_agent.saves.held_saves import (
    Choice,
    HeldSave,
    Parts,
    gather,
    read_parts,
    read_saves,
    write_parts,
    write_saves,
)

_MAX_PORT = 65535
_LONGEST = 256


@dataclass(frozen=True, slots=True)
class Peer:
    """One member."""

    rank: int
    address: str
    port: int
    node: str
    """The name of its node; equal for members of one node."""
    directory: str
    """Equal for members that share a directory."""
    held: tuple[HeldSave, ...] = ()
    zone: str = ""
    """The zone of its node. Empty: unknown."""
    durable: tuple[HeldSave, ...] = ()
    """The saves that it finds whole on durable storage."""
    parts: tuple[Parts, ...] = ()
    """Those of which it finds only some parts there."""
    files: str = ""
    """Equal for members with the same files of saves in their directories. Empty: there are none."""
    left: bool = False
    """True if it holds no saves of this script: its files are left to the script."""
    held_parts: tuple[Parts, ...] = ()
    """The saves of several writers of which it holds parts, beside those in `held`."""

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        place = [self.address, self.port, self.node, self.directory, self.zone, self.files, int(self.left)]
        alone, together = self._split()
        saves = [write_saves(alone), write_saves(self.durable), write_parts(self.parts), write_parts(together)]
        return json.dumps([place, *saves], separators=(",", ":"))

    @classmethod
    def from_json(cls, rank: int, text: str) -> Self:
        """Read what another member published. Raises ValueError."""
        try:
            place, held, durable, parts, held_parts = json.loads(text)
            address, port, node, directory, zone, files, left = place
        except (TypeError, AttributeError, RecursionError) as error:
            raise ValueError(str(error)) from None
        texts = (address, node, directory, zone, files)
        if not all(isinstance(each, str) and len(each) <= _LONGEST for each in texts) or type(port) is not int:
            raise ValueError("not a peer")
        if not 0 < port <= _MAX_PORT:
            raise ValueError("not a port")
        saves = read_saves(held), zone, read_saves(durable), read_parts(parts)
        return cls(rank, address, port, node, directory, *saves, files, left == 1, read_parts(held_parts))

    def gathered(self) -> Self:
        """Return the same member with all its parts in `held_parts`: as others read it."""
        alone, together = self._split()
        return replace(self, held=alone, held_parts=together)

    def holds(self, choice: Choice) -> tuple[int, int]:
        """Return the bits of the owners whose parts of a save it holds, and of those that no other rank loads."""
        if choice.writers == 1:
            return (1 << choice.owner if any(map(choice.includes, self.held)) else 0), 0
        owners = own = 0
        for parts in filter(choice.has, self._split()[1]):
            owners, own = owners | parts.owners, own | parts.own
        return owners, own

    def _split(self) -> tuple[tuple[HeldSave, ...], tuple[Parts, ...]]:
        alone = tuple(save for save in self.held if save.writers == 1)
        return alone, (*self.held_parts, *gather(self.held))


def targets(own: Peer, others: Iterable[Peer]) -> list[Peer]:
    """Return the peers that may keep copies, the best first: in other zones, then on other nodes, then the rest.

    A node that has a peer already comes again only after all nodes that have none, so that copies are on several nodes.
    """
    members = [own, *others]
    far = _beyond(own, [member for member in members if own.zone and member.zone], lambda member: member.zone)
    rest = _without(members, far)
    near = _beyond(own, rest, lambda member: member.node)
    return _spread(own, [*far, *near, *_beyond(own, _without(rest, near), lambda member: member.rank)])


def _spread(own: Peer, order: Iterable[Peer]) -> list[Peer]:
    """Put the first peer of each node first, then the second one, and so on; the own node has one already."""
    earlier = Counter([own.node])
    turns: list[tuple[int, Peer]] = []
    for peer in order:
        turns.append((earlier[peer.node], peer))
        earlier[peer.node] += 1
    return [peer for _, peer in sorted(turns, key=lambda entry: entry[0])]


def _without(members: Iterable[Peer], others: Iterable[Peer]) -> list[Peer]:
    ranks = {other.rank for other in others}
    return [member for member in members if member.rank not in ranks]


def _beyond(own: Peer, members: Sequence[Peer], group: Callable[[Peer], Hashable]) -> list[Peer]:
    """Return the members of the other groups, the best first.

    The members lie in a line, group by group, and each counts on by the size of the largest group, again and again. So
    its first peers are of different groups, and no two members have the same best peer, or the same second one. If a
    group has more than half of the members, the others share its copies evenly.
    """
    lowest: dict[Hashable, int] = {}
    for member in members:
        lowest[group(member)] = min(member.rank, lowest.get(group(member), member.rank))
    line = sorted(members, key=lambda member: (lowest[group(member)], member.rank))
    inside = [member for member in line if group(member) == group(own)]
    if len(inside) == len(line):
        return []
    end = line.index(inside[-1]) + 1
    outside = line[end:] + line[: end - len(inside)]
    most = max(Counter(map(group, line)).values())
    start = (inside.index(own) + most - len(inside)) % len(outside)
    turned = outside[start:] + outside[:start]
    return [peer for first in range(most) for peer in turned[first::most]]
