"""The cached state of one kind of object: small values, the newest version wins, a deleted object stays deleted.

Events, lists and responses to the operator's own writes may arrive in any order, twice, or not at all. The store
compares them by resourceVersion, an integer that only grows. Only a list may contradict it: after a restore of etcd the
versions are lower than before. The store sends nothing; its clock is an argument. One thread changes it; any may read
it by `get` and `by_owner`, as the coordinator's does.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Generic, Protocol, TypeVar

_FOREVER = 2**63
_TOMBSTONE_SECONDS = 600.0
_MAX_TOMBSTONES = 100_000


class StoredObject(Protocol):
    """The properties of a value that the store needs."""

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


T = TypeVar("T", bound=StoredObject)


class Store(Generic[T]):
    """The newest known state of each object, indexed by name and by owner; several reflectors may fill one store.

    `on_change(owner_uid)` is called at once for each owner whose objects changed; it must return quickly.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        on_change: Callable[[str], None] = lambda owner_uid: None,
        tombstone_seconds: float = _TOMBSTONE_SECONDS,
        on_gone: Callable[[T], None] = lambda item: None,
    ) -> None:
        """`on_gone(item)` is called for each object that is gone: its name is free."""
        self._on_change = on_change
        self._on_gone = on_gone
        self.newest = 0
        """The highest resourceVersion of the objects so far."""
        self._by_name: dict[tuple[str, str], T] = {}
        self._by_owner: dict[str, dict[tuple[str, str], T]] = {}
        self._tombstones = Tombstones(clock, tombstone_seconds)

    def __len__(self) -> int:
        """The number of objects."""
        return len(self._by_name)

    def get(self, namespace: str, name: str) -> T | None:
        """The object of that name; None if it is not known."""
        return self._by_name.get((namespace, name))

    def by_owner(self, uid: str) -> tuple[T, ...]:
        """All objects that this owner controls."""
        return tuple(self._by_owner.get(uid, {}).values())

    def count(self, uid: str) -> int:
        """The number of objects that this owner controls."""
        return len(self._by_owner.get(uid, {}))

    def put(self, item: T, listed_at: int = 0) -> bool:
        """Store a state from an event, a list or a response; False if a newer state is already stored.

        A list replaces also a newer state up to its own version, `listed_at`: the server no longer has that state.
        """
        if item.resource_version <= self._tombstones.version(item.uid):
            return False
        known = self._by_name.get(_key(item))
        if known and known.resource_version >= item.resource_version and not _contradicted(known, item, listed_at):
            return False
        self.newest = max(self.newest, item.resource_version)
        if known and known.uid != item.uid:
            self._tombstones.add(known.uid, _FOREVER)  # a name is only free again once its object is gone
        self._replace(known, item)
        return True

    def remove(self, item: T) -> bool:
        """Process a DELETED event, which carries the last state; True if the object was still stored."""
        self._tombstones.add(item.uid, item.resource_version)
        known = self._by_name.get(_key(item))
        if not known or known.uid != item.uid or known.resource_version > item.resource_version:
            return False
        self._replace(known, None)
        return True

    def gone(self, namespace: str, name: str, uid: str) -> bool:
        """Remove the object because the server answered that this uid no longer exists; True if it was stored."""
        self._tombstones.add(uid, _FOREVER)
        known = self._by_name.get((namespace, name))
        if not known or known.uid != uid:
            return False
        self._replace(known, None)
        return True

    def sweep(self, seen: Collection[str], list_version: int, namespace: str | None = None) -> int:
        """Remove what a complete list of one namespace (None: of all) lacks, and return how many objects that were.

        `seen` holds the uids in the list. Objects newer than `list_version` were created after it and stay.
        """
        unseen = (item for item in self._within(namespace) if item.uid not in seen)
        deleted = [item for item in unseen if item.resource_version <= list_version]
        for item in deleted:
            self._tombstones.add(item.uid, list_version)
            self._replace(item, None)
        return len(deleted)

    def reset(self, version: int, namespace: str | None = None) -> None:
        """Forget all objects and versions: the server's resourceVersion went back to `version`, as after a restore."""
        self._tombstones.clear()
        self.newest = version
        for item in list(self._within(namespace)):
            self._replace(item, None)

    def _within(self, namespace: str | None) -> Iterator[T]:
        return (item for item in self._by_name.values() if namespace in (None, item.namespace))

    def _replace(self, old: T | None, new: T | None) -> None:
        """Put `new` in the place of `old`, which has the same name. A thread that reads meanwhile finds one of them."""
        if new:
            self._by_name[_key(new)] = new
            if new.owner_uid:
                self._by_owner.setdefault(new.owner_uid, {})[_key(new)] = new
        elif old:
            del self._by_name[_key(old)]
        if old and (not new or new.owner_uid != old.owner_uid):
            self._unlink(old)
        if old and not new:
            self._on_gone(old)
        for owner in {item.owner_uid for item in (old, new) if item and item.owner_uid}:
            self._on_change(owner)

    def _unlink(self, old: T) -> None:
        siblings = self._by_owner.get(old.owner_uid or "")
        if siblings is None:
            return
        siblings.pop(_key(old), None)
        if not siblings:
            del self._by_owner[str(old.owner_uid)]


class Tombstones:
    """The uids of deleted objects, each with the last version that may have existed; limited in time and number."""

    def __init__(self, clock: Callable[[], float], seconds: float, most: int = _MAX_TOMBSTONES) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._dead: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        """The number of remembered uids."""
        return len(self._dead)

    def version(self, uid: str) -> int:
        """The version up to which states of this uid are outdated; -1 if the uid is not known as deleted."""
        until, version = self._dead.get(uid, (0.0, -1))
        return version if until > self._clock() else -1

    def add(self, uid: str, version: int) -> None:
        """Remember a deletion; the highest version counts."""
        now = self._clock()
        version = max(version, self.version(uid))
        self._dead[uid] = (now + self._seconds, version)
        self._dead.move_to_end(uid)
        while self._dead and (len(self._dead) > self._most or next(iter(self._dead.values()))[0] <= now):
            self._dead.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        self._dead.clear()


def _contradicted(known: StoredObject, item: StoredObject, listed_at: int) -> bool:
    """True if a list of this version shows an older state than the known one, which it would have to contain."""
    return item.resource_version < known.resource_version <= listed_at


def _key(item: StoredObject) -> tuple[str, str]:
    return (item.namespace, item.name)
