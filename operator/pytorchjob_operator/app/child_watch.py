"""Watches the kinds of children that few jobs have, once a job wants such a child.

A cluster without autoscaled or gang-scheduled jobs has no such watch. If a kind is not installed, or the operator may
not list it, the request is repeated with back-off. Until it succeeds, `Caches.unserved` holds the error, and plans know
that the absence of children means nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import count

from pytorchjob_operator import names
from pytorchjob_operator.control.caches import Caches
from pytorchjob_operator.errors import ApiError
from pytorchjob_operator.kube.backoff import Backoff
from pytorchjob_operator.kube.client import ApiClient, Object, Scope
from pytorchjob_operator.kube.reflector import Reflector
from pytorchjob_operator.kube.resource import CHILDREN
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.observed import Child

logger = logging.getLogger(__name__)
_ASK_AGAIN = Backoff(first=1.0, cap=30.0)
RARE = tuple(kind for kind in ChildKind if kind is not ChildKind.SERVICE)


class ChildWatch:
    """Fills the stores of the rare kinds; `on_change` is called whenever a kind becomes available or unavailable."""

    def __init__(
        self, client: ApiClient, caches: Caches, namespaces: tuple[str, ...], on_change: Callable[[], None]
    ) -> None:
        self._client = client
        self._caches = caches
        self._namespaces = namespaces
        self._on_change = on_change
        self._wanted: dict[ChildKind, asyncio.Event] = {kind: asyncio.Event() for kind in RARE}
        caches.unserved.update(dict.fromkeys(RARE, ""))

    def want(self, kinds: Iterable[ChildKind]) -> None:
        """Watch these kinds from now on: a job wants such children."""
        for kind in kinds:
            self._wanted[kind].set()

    async def run(self) -> None:
        """Watch the wanted kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in RARE:
                group.create_task(self._watch(kind))

    async def _watch(self, kind: ChildKind) -> None:
        await self._wanted[kind].wait()
        # Kueue's own integration makes Workloads without our labels.
        selector = None if kind is ChildKind.WORKLOAD else names.operator_selector()
        scopes = [Scope(CHILDREN[kind], namespace, selector) for namespace in self._namespaces or (None,)]
        await self._until_served(kind, scopes[0])
        reflectors = [self._reflector(kind, scope) for scope in scopes]
        async with asyncio.TaskGroup() as group:
            for reflector in reflectors:
                group.create_task(reflector.run())
            for reflector in reflectors:
                await reflector.synced.wait()
            del self._caches.unserved[kind]
            self._on_change()

    async def _until_served(self, kind: ChildKind, scope: Scope) -> None:
        for attempt in count():
            try:
                async for _ in self._client.list(scope, limit=1):
                    return
            except ApiError as error:
                self._unavailable(kind, str(error))
            await asyncio.sleep(_ASK_AGAIN.delay(attempt))

    def _unavailable(self, kind: ChildKind, error: str) -> None:
        if self._caches.unserved[kind] != error:
            self._caches.unserved[kind] = error
            logger.warning("jobs that need a %s wait, because it cannot be listed: %s", kind.value, error)
            self._on_change()

    def _reflector(self, kind: ChildKind, scope: Scope) -> Reflector[Child]:
        return Reflector(self._client, scope, self._caches.children[kind], lambda obj: _child(kind, obj))


def _child(kind: ChildKind, obj: Object) -> Child | None:
    """Return the child; None: it belongs to another kind of job."""
    owners = obj["metadata"].get("ownerReferences") or ()
    if kind is ChildKind.WORKLOAD and not any(each.get("kind") == names.KIND for each in owners):
        return None
    return Child.from_api(kind, obj)
