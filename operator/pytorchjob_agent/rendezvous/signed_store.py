"""What the members of a round write to its store for each other, with a proof that a member wrote it. Pure.

The round's store has no authentication: any process that reaches its port can write to it. So each value carries
an HMAC of the round's secret over the round, the key, the sender's rank and the value. A value without a valid one
counts as missing.
"""

import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pytorchjob_agent.contract.messages import Assigned, RoundId

_MAC_DIGITS = 64
_LONGEST = 512 * 1024
"""Characters of one value. Longer ones are not read: no member writes them. The longest tells who holds which part of a
save in the largest job."""


class TorchStore(Protocol):
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


@dataclass(frozen=True, slots=True)
class Signed:
    """A value that a member wrote."""

    rank: int
    """The node rank of the member."""
    value: str


class SignedStore:
    """One member's view of its round's store. Every call may raise RuntimeError: the store cannot be reached."""

    def __init__(
        self, store: TorchStore, assigned: Assigned, on_invalid: Callable[[str], None] = lambda _: None
    ) -> None:
        """Sign as the member with this place; `on_invalid` receives each key with an invalid value, once."""
        self._store, self.assigned, self._on_invalid = store, assigned, on_invalid
        self._reported: set[str] = set()

    def write(self, key: str, value: str) -> None:
        """Write a value as this member."""
        self._store.set(key, self._sign(key, value, self.assigned.rank))

    def prepare(self, keys: Sequence[str], value: str, ranks: Sequence[int]) -> None:
        """Write a first value for other members, so that their keys can be read all at once."""
        if keys:
            values = [self._sign(key, value, rank) for key, rank in zip(keys, ranks, strict=True)]
            self._store.multi_set(list(keys), values)

    def read(self, key: str, rank: int | None = None) -> Signed | None:
        """Return a member's value, of this rank if one is given; None: there is none, or it is not a member's."""
        return self._verify(key, self._store.get(key), rank) if self._store.check([key]) else None

    def read_all(self, keys: Sequence[str], ranks: Sequence[int]) -> list[Signed | None]:
        """Return the values of keys that exist, each of the member with the rank beside it."""
        found = self._store.multi_get(list(keys)) if keys else []
        return [self._verify(key, data, rank) for key, data, rank in zip(keys, found, ranks, strict=True)]

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether every key has a value, whoever wrote it."""
        return self._store.check(list(keys))

    def has_all(self, keys: Sequence[str], ranks: Sequence[int]) -> bool:
        """Return whether every key has a value of the member with the rank beside it."""
        return self.check(keys) and None not in self.read_all(keys, ranks)

    def _sign(self, key: str, value: str, rank: int) -> str:
        return f"{_mac(self.assigned, key, value, rank)} {rank} {value}"

    def _verify(self, key: str, data: bytes, rank: int | None) -> Signed | None:
        signed = _parse(data)
        if signed is not None and rank in (None, signed[1].rank):
            expected = _mac(self.assigned, key, signed[1].value, signed[1].rank)
            if hmac.compare_digest(signed[0].encode(), expected.encode()):
                return signed[1]
        if key not in self._reported:
            self._reported.add(key)
            self._on_invalid(key)
        return None


def next_secret(secret: str, id_: RoundId) -> str:
    """Return the secret of the round that members agree on without the coordinator: the same for all of them."""
    return hmac.digest(secret.encode(), f"next {id_}".encode(), "sha256").hex() if secret else ""


def _mac(assigned: Assigned, key: str, value: str, rank: int) -> str:
    text = json.dumps([str(assigned.round), key, rank, value])
    return hmac.digest(assigned.secret.encode(), text.encode(), "sha256").hex()


def _parse(data: bytes) -> tuple[str, Signed] | None:
    """Return the HMAC and what it is to prove; None for anything that no member writes."""
    if len(data) > _LONGEST:
        return None
    mac, _, rest = data.decode(errors="replace").partition(" ")
    rank, space, value = rest.partition(" ")
    if len(mac) != _MAC_DIGITS or not (space and rank.isascii() and rank.isdigit() and len(rank) < _MAC_DIGITS):
        return None
    return mac, Signed(int(rank), value)
