"""Keeps a store equal to a part of the API server, for as long as the process lives.

It lists, removes from the store what the list lacks, then watches. A failure is retried without end, with back-off:
`_failed` decides whether the next attempt resumes the watch or lists again, as after HTTP 410. Before it resumes an
interrupted watch, it checks that the server has not been restored from a backup. It keeps no API object: each is
decoded into the caller's small value at once.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pytorchjob_operator.errors import ApiError, Expired, Unavailable
from pytorchjob_operator.kube.backoff import Backoff
from pytorchjob_operator.kube.client import ApiClient, Object, Scope
from pytorchjob_operator.kube.store import Store, StoredObject

T = TypeVar("T", bound=StoredObject)
_log = logging.getLogger(__name__)
_spread = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class ReflectorSettings:
    """Timeouts and limits of a reflector; durations in seconds."""

    page: int = 500
    silence: float = 28.0
    """A watch without any data for this long is dead: the server ends it sooner, with a bookmark before its end."""
    lasting: tuple[float, float] = (18.0, 24.0)
    """Bounds of a watch's length; each watch draws its own, so that replicas do not reconnect together."""
    steady: float = 5.0
    """A watch that lasted this long counts as a success."""
    relist_after: int = 5
    """After this many failures in a row, list again instead of resuming the watch."""
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.2, cap=5.0))
    """Short, because a silent watch makes the operator not ready: after an outage it must soon be ready again."""


@dataclass(slots=True)
class ReflectorCounters:
    """Counts since the start, by which tests see what a reflector has done; no metric shows them."""

    lists: int = 0
    watches: int = 0
    failures: int = 0
    swept: int = 0


class Reflector(Generic[T]):
    """Fills `store` with `decode(object)` of every object in `scope`; `decode` returns None to ignore an object."""

    def __init__(
        self,
        client: ApiClient,
        scope: Scope,
        store: Store[T],
        decode: Callable[[Object], T | None],
        settings: ReflectorSettings | None = None,
    ) -> None:
        self._client = client
        self._scope = scope
        self._store = store
        self._decode = decode
        self._settings = settings or ReflectorSettings()
        self._version: str | None = None
        """The resourceVersion at which the next watch starts; None lists first."""
        self._seen_version = 0
        self._contact: float | None = None
        self._broken = 0
        self._interrupted = False
        """Whether the last watch ended early or without any event: the server may have been restored from a backup."""
        self.synced = asyncio.Event()
        """Set once the first list is complete, and never cleared."""
        self.counters = ReflectorCounters()

    def last_contact_age(self, now: float) -> float:
        """Seconds since the server last sent anything, at loop time `now`; infinite before its first response."""
        return float("inf") if self._contact is None else max(0.0, now - self._contact)

    async def refresh(self) -> None:
        """List again while the watch continues: afterwards the store is not older than this call. Raises ApiError."""
        await self._list()

    @property
    def plural(self) -> str:
        """The resource that it watches, in the plural."""
        return self._scope.resource.plural

    async def run(self) -> None:
        """List and watch until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                await self._cycle()
            except ApiError as error:
                self._failed(error)
            except Exception:  # top of the loop: a bug in decode may not end the watch
                _log.exception("%s: the watch failed unexpectedly", self.plural)
                self._failed(None)
            if loop.time() - started >= self._settings.steady:
                self._broken = min(self._broken, 1)
            await asyncio.sleep(self._settings.backoff.delay(max(0, self._broken - 1)))

    async def _cycle(self) -> None:
        if self._interrupted and self._version:
            await self._check_version()
        version = self._version or await self._list()
        lasting = _spread.uniform(*self._settings.lasting)
        loop = asyncio.get_running_loop()
        opened_at, self._interrupted = loop.time(), True
        opened = self._client.watch(self._scope, version, lasting, self._settings.silence)
        async with opened as events:
            self.counters.watches += 1
            self._note_contact()
            silent = True
            async for event in events:
                version = self._take(event, version)
                self._broken, silent = 0, False
        self._interrupted = silent or loop.time() - opened_at < self._settings.lasting[0]
        self._broken += 1  # a regular end; only a server that ends watch after watch at once runs into the back-off

    async def _check_version(self) -> None:
        """List again, instead of resuming the watch, if the server is behind what the store has seen.

        A watch from a version in the future would stay silent until the server reaches that version.
        """
        async for page in self._client.list(self._scope, limit=1):
            if _went_back(_number(page.resource_version), self._newest()):
                self._version = None
            return

    async def _list(self) -> str:
        seen: set[str] = set()
        version, newest = "", self._newest()
        async for page in self._client.list(self._scope, self._settings.page):
            self._note_contact()
            if not version:
                version = page.resource_version
                self._detect_restore(_number(version), newest)
            for item in filter(None, map(self._decode, page.items)):
                seen.add(item.uid)
                self._store.put(item, _number(version))
        self.counters.lists += 1
        self.counters.swept += self._store.sweep(seen, _number(version), self._scope.namespace)
        self._version = version
        self._seen_version = max(self._seen_version, _number(version))
        self.synced.set()
        return version

    def _newest(self) -> int:
        """The highest version that the server has shown: a list that is requested now cannot be older."""
        return max(self._seen_version, self._store.newest)

    def _detect_restore(self, version: int, newest: int) -> None:
        """Drop everything if resourceVersions went back: etcd was restored from an older backup."""
        if _went_back(version, newest):
            _log.warning("%s: the server's resourceVersion went back; the cache is refilled", self.plural)
            self._seen_version = version
            self._store.reset(version, self._scope.namespace)

    def _take(self, event: Object, last: str) -> str:
        """Apply an event to the store and return its version. `last`: the version of the event before it.

        The versions of a watch only rise. Raises Expired if they fall: the server was restored from a backup.
        """
        self._note_contact()
        kind, body = event.get("type"), event.get("object") or {}
        version = str((body.get("metadata") or {}).get("resourceVersion") or "")
        if _went_back(_number(version), _number(last)):
            raise Expired(410, "Expired", f"the resourceVersion went back from {last} to {version}")
        if kind != "BOOKMARK":
            self._apply(kind, self._decode(body))
        if version:
            self._version = version
            self._seen_version = max(self._seen_version, _number(version))
        return version or last

    def _apply(self, kind: object, item: T | None) -> None:
        if item is None:
            return
        if kind == "DELETED":
            self._store.remove(item)
        else:
            self._store.put(item)

    def _note_contact(self) -> None:
        self._contact = asyncio.get_running_loop().time()

    def _failed(self, error: ApiError | None) -> None:
        """Resume the watch after a transient failure; after HTTP 410 (Expired) and any other error, list again.

        410 is expected, whenever the server has compacted the history since `_version`: no warning.
        """
        self.counters.failures += 1
        self._broken += 1
        resumable = isinstance(error, Unavailable) and self._broken % self._settings.relist_after
        if not resumable:
            self._version = None
        if error:
            level = logging.DEBUG if isinstance(error, Expired) else logging.WARNING
            _log.log(level, "%s: the watch failed: %s", self.plural, error)


def _went_back(version: int, newest: int) -> bool:
    return 0 < version < newest


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0
