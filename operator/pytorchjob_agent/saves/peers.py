"""What members publish in their round's store about their saves: address, node, directory, what they hold. Pure."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pytorchjob_agent.contract.held_saves import Choice, HeldSave, SaveId, round_of

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

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        saves = [[str(save.id.round), save.id.owner, save.id.number, save.writers, save.label] for save in self.held]
        return json.dumps([self.address, self.port, self.node, self.directory, saves])

    @classmethod
    def from_json(cls, rank: int, text: str) -> Self:
        """Read what another member published. Raises ValueError."""
        try:
            address, port, node, directory, saves = json.loads(text)
            held = tuple(_save(entry) for entry in saves)
        except (TypeError, AttributeError, RecursionError) as error:
            raise ValueError(str(error)) from None
        texts = (address, node, directory)
        if not all(isinstance(each, str) and len(each) <= _LONGEST for each in texts) or type(port) is not int:
            raise ValueError("not a peer")
        if not 0 < port <= _MAX_PORT:
            raise ValueError("not a port")
        return cls(rank, address, port, node, directory, held)

    def has(self, choice: Choice, owner: int) -> SaveId | None:
        """Return the newest part of a chosen save that this member holds of this owner."""
        found = [save.id for save in self.held if choice.includes(save) and save.id.owner == owner]
        return max(found, default=None)


def _save(entry: Any) -> HeldSave:
    round_, owner, number, writers, label = entry
    id_ = round_of(round_)
    if id_ is None or not all(type(count) is int for count in (owner, number, writers)) or not isinstance(label, str):
        raise ValueError("not a save")
    return HeldSave(SaveId(id_, owner, number), 0, "", writers, label)


def targets(own: Peer, others: Iterable[Peer], size: int) -> list[Peer]:
    """Return the peers that may keep copies, the best first: on other nodes, then the next ranks."""
    return sorted(others, key=lambda peer: (peer.node == own.node, (peer.rank - own.rank) % size))


def shares_directory(own: Peer, others: Sequence[Peer]) -> bool:
    """Return whether another member has the same directory."""
    return any(peer.directory == own.directory for peer in others)
