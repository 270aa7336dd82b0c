"""What members publish in their round's store about their caches, and which of them a new pod asks. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

_MAX_PORT, _LONGEST = 65535, 256
_ASKED = 3
"""How many members a new pod asks at most, one after the other."""


@dataclass(frozen=True, slots=True)
class Source:
    """One member that may have caches."""

    rank: int
    address: str
    port: int
    key: str
    fill: int
    """How full its caches are, by the number of folders; 0: they are empty."""

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        return json.dumps([self.address, self.port, self.key, self.fill])

    @classmethod
    def from_json(cls, rank: int, text: str) -> Self:
        """Read what another member published. Raises ValueError."""
        try:
            address, port, key, fill = json.loads(text)
        except (TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None
        texts = all(isinstance(each, str) and len(each) <= _LONGEST for each in (address, key))
        if not texts or type(port) is not int or type(fill) is not int or not 0 < port <= _MAX_PORT:
            raise ValueError("not a source of caches")
        return cls(rank, address, port, key, max(fill, 0))


def order(own: Source, others: Sequence[Source], members: int) -> list[Source]:
    """Return the members to ask: with the same key and clearly fuller caches first, then the next ranks.

    Several new pods then ask different members.
    """
    fitting = [each for each in others if each.key == own.key and each.fill]
    nearest = sorted(fitting, key=lambda each: (-each.fill.bit_length(), (each.rank - own.rank) % members))
    return nearest[:_ASKED]


def sample(rank: int, members: int) -> list[int]:
    """Return the ranks that a new pod inspects: near ones and far ones, few also in a large job."""
    distances = (1 << power for power in range(members.bit_length()))
    return sorted({(rank + distance) % members for distance in distances} - {rank})
