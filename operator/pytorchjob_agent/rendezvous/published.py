"""What the members of a round publish in its store for each other, one value of a kind for each member. Pure."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pytorchjob_agent.rendezvous.signed_store import SignedStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Published(Generic[T]):
    """The values of one kind. The methods raise RuntimeError if the store cannot be reached."""

    store: SignedStore
    kind: str
    """What their keys begin with."""
    parse: Callable[[int, str], T]
    """Reads the value of the member with this rank. Raises ValueError."""

    def write(self, value: str) -> None:
        """Publish as this member; a later value replaces it."""
        self.store.write(self._key(self.store.assigned.rank), value)

    def read(self, ranks: Iterable[int]) -> dict[int, T | None]:
        """Return what the members with these ranks have published; None: a value of another version of the agent."""
        found = {rank: self.store.read(self._key(rank), rank) for rank in ranks}
        return {rank: self._parse(rank, signed.value) for rank, signed in found.items() if signed is not None}

    def read_whole(self, ranks: Sequence[int]) -> list[T]:
        """Return what all these members have published, by two requests; nothing as long as one is missing."""
        keys = [self._key(rank) for rank in ranks]
        if not self.store.check(keys):
            return []
        found = [
            None if signed is None else self._parse(rank, signed.value)
            for rank, signed in zip(ranks, self.store.read_all(keys, ranks), strict=True)
        ]
        return [value for value in found if value is not None] if None not in found else []

    def _key(self, rank: int) -> str:
        return f"{self.kind}/{rank}"

    def _parse(self, rank: int, value: str) -> T | None:
        try:
            return self.parse(rank, value)
        except ValueError:
            return None


class Awaited(Generic[T]):
    """Members whose values are awaited, each of them once, up to a time."""

    def __init__(self, published: Published[T], ranks: Collection[int], until: float) -> None:
        """Await these ranks. `until`, in monotonic seconds, depends on what waits: workers wait least."""
        self._published, self._until = published, until
        self.silent = sorted(ranks)
        """The ranks that have published nothing so far."""
        self.found: list[T] = []

    def over(self, now: float) -> bool:
        """Read what came since; True once all have published, or the time is over."""
        arrived = self._published.read(self.silent)
        self.silent = [rank for rank in self.silent if rank not in arrived]
        self.found += [value for value in arrived.values() if value is not None]
        return not self.silent or now > self._until
