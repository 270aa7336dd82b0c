"""What is known of one kind of object: small values, newest wins, the dead stay dead.

Events, lists and the replies to our own writes may come in any order, twice, or not at all. Every one is guarded by
the resourceVersion, an integer that only grows. The store sends nothing and reads no clock of its own.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Generic, Protocol, TypeVar

_FOREVER = 2**63
_TOMBSTONE_SECONDS = 600.0
_MAX_TOMBSTONES = 100_000


class Stored(Protocol):
    """What the store must know of a value."""

    @property
    def name(self) -> str:
        """`metadata.name`."""

    @property
    def namespace(self) -> str:
        """`metadata.namespace`, empty for cluster-scoped objects."""

    @property
    def uid(self) -> str:
        """`metadata.uid`."""

    @property
    def resource_version(self) -> int:
        """`metadata.resourceVersion`."""

    @property
    def owner_uid(self) -> str | None:
        """The uid of the controlling owner."""


T = TypeVar("T", bound=Stored)


class Store(Generic[T]):
    """The newest known state of each object, indexed by name and by owner; several reflectors may fill one store.

    `on_change(owner_uid)` is called at once for each owner whose set of objects changed; it must only take a note.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        on_change: Callable[[str], None] = lambda owner_uid: None,
        tombstone_seconds: float = _TOMBSTONE_SECONDS,
    ) -> None:
        self._on_change = on_change
        self._by_name: dict[tuple[str, str], T] = {}
        self._by_owner: dict[str, dict[tuple[str, str], T]] = {}
        self._tombstones = Tombstones(clock, tombstone_seconds)

    def __len__(self) -> int:
        """How many objects are known."""
        return len(self._by_name)

    def get(self, namespace: str, name: str) -> T | None:
        """The object of that name."""
        return self._by_name.get((namespace, name))

    def by_owner(self, uid: str) -> tuple[T, ...]:
        """All objects that this owner controls."""
        return tuple(self._by_owner.get(uid, {}).values())

    def count(self, uid: str) -> int:
        """How many objects this owner controls."""
        return len(self._by_owner.get(uid, {}))

    def put(self, item: T) -> bool:
        """Take a state from an event, a list or a reply; False if something newer is known already."""
        if item.resource_version <= self._tombstones.version(item.uid):
            return False
        known = self._by_name.get(_key(item))
        if known and known.resource_version >= item.resource_version:
            return False
        if known and known.uid != item.uid:
            self._tombstones.add(known.uid, _FOREVER)  # a name is only free again once its object is gone
        self._replace(known, item)
        return True

    def remove(self, item: T) -> bool:
        """Take a DELETED event: this state was its last; True if that was news."""
        self._tombstones.add(item.uid, item.resource_version)
        known = self._by_name.get(_key(item))
        if not known or known.uid != item.uid or known.resource_version > item.resource_version:
            return False
        self._replace(known, None)
        return True

    def gone(self, namespace: str, name: str, uid: str) -> bool:
        """Take the server's word, in reply to a request of ours, that this uid does not exist any more."""
        self._tombstones.add(uid, _FOREVER)
        known = self._by_name.get((namespace, name))
        if not known or known.uid != uid:
            return False
        self._replace(known, None)
        return True

    def sweep(self, seen: Collection[str], list_version: int, namespace: str | None = None) -> int:
        """Drop what a whole list of one namespace (None: of all) did not show; `seen` holds the uids that it did.

        `list_version` is when the list was taken: what is newer has been made since.
        """
        unseen = (one for one in self._within(namespace) if one.uid not in seen)
        dead = [one for one in unseen if one.resource_version <= list_version]
        for one in dead:
            self._tombstones.add(one.uid, list_version)
            self._replace(one, None)
        return len(dead)

    def reset(self, namespace: str | None = None) -> None:
        """Forget all versions: the server's count went back, so it was restored from an older copy."""
        self._tombstones.clear()
        for one in list(self._within(namespace)):
            self._replace(one, None)

    def _within(self, namespace: str | None) -> Iterator[T]:
        return (one for one in self._by_name.values() if namespace in (None, one.namespace))

    def _replace(self, old: T | None, new: T | None) -> None:
        if old:
            del self._by_name[_key(old)]
            self._unlink(old)
        if new:
            self._by_name[_key(new)] = new
            if new.owner_uid:
                self._by_owner.setdefault(new.owner_uid, {})[_key(new)] = new
        for owner in {one.owner_uid for one in (old, new) if one and one.owner_uid}:
            self._on_change(owner)

    def _unlink(self, old: T) -> None:
        siblings = self._by_owner.get(old.owner_uid or "")
        if siblings is None:
            return
        siblings.pop(_key(old), None)
        if not siblings:
            del self._by_owner[str(old.owner_uid)]


class Tombstones:
    """The uids of the dead, each with the last version at which it can have lived; bounded in time and number."""

    def __init__(self, clock: Callable[[], float], seconds: float, most: int = _MAX_TOMBSTONES) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._dead: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._dead)

    def version(self, uid: str) -> int:
        """States of this uid up to this version are history; -1 if it is not known as dead."""
        until, version = self._dead.get(uid, (0.0, -1))
        return version if until > self._clock() else -1

    def add(self, uid: str, version: int) -> None:
        """Remember a death; the highest version counts."""
        now = self._clock()
        version = max(version, self.version(uid))
        self._dead[uid] = (now + self._seconds, version)
        self._dead.move_to_end(uid)
        while self._dead and (len(self._dead) > self._most or next(iter(self._dead.values()))[0] <= now):
            self._dead.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        self._dead.clear()


def _key(item: Stored) -> tuple[str, str]:
    return (item.namespace, item.name)
