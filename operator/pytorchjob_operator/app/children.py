"""Watches the kinds of children that few jobs have, from the moment that a job wants one.

A cluster without autoscaled or gang-scheduled jobs pays nothing for them. A kind that is not installed, or that the
operator may not see, is asked for again now and then; until it is seen, plans conclude nothing from its absence.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import count

from pytorchjob_operator import names
from pytorchjob_operator.control.caches import Caches
from pytorchjob_operator.errors import ApiError
from pytorchjob_operator.kube.backoff import Backoff
from pytorchjob_operator.kube.client import Client, Scope
from pytorchjob_operator.kube.reflector import Reflector
from pytorchjob_operator.kube.resource import CHILDREN
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.observed import Child

logger = logging.getLogger(__name__)
_ASK_AGAIN = Backoff(first=1.0, cap=30.0)
RARE = tuple(kind for kind in ChildKind if kind is not ChildKind.SERVICE)


class ChildWatch:
    """Fills the stores of the rare kinds; `on_change` is called whenever a kind has come into sight or out of reach."""

    def __init__(
        self, client: Client, caches: Caches, namespaces: tuple[str, ...], on_change: Callable[[], None]
    ) -> None:
        self._client = client
        self._caches = caches
        self._namespaces = namespaces
        self._on_change = on_change
        self._wanted: dict[ChildKind, asyncio.Event] = {kind: asyncio.Event() for kind in RARE}
        caches.unserved.update(dict.fromkeys(RARE, ""))

    def want(self, kinds: Iterable[ChildKind]) -> None:
        """A job wants children of these kinds: watch them from now on."""
        for kind in kinds:
            self._wanted[kind].set()

    async def run(self) -> None:
        """Watch whatever is wanted until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in RARE:
                group.create_task(self._watch(kind))

    async def _watch(self, kind: ChildKind) -> None:
        await self._wanted[kind].wait()
        scopes = [Scope(CHILDREN[kind], one, names.operator_selector()) for one in self._namespaces or (None,)]
        await self._until_served(kind, scopes[0])
        reflectors = [self._reflector(kind, scope) for scope in scopes]
        async with asyncio.TaskGroup() as group:
            for one in reflectors:
                group.create_task(one.run())
            for one in reflectors:
                await one.synced.wait()
            del self._caches.unserved[kind]
            self._on_change()

    async def _until_served(self, kind: ChildKind, scope: Scope) -> None:
        for attempt in count():
            try:
                async for _ in self._client.list(scope, limit=1):
                    return
            except ApiError as error:
                self._trouble(kind, str(error))
            await asyncio.sleep(_ASK_AGAIN.delay(attempt))

    def _trouble(self, kind: ChildKind, text: str) -> None:
        if self._caches.unserved[kind] != text:
            self._caches.unserved[kind] = text
            logger.warning("jobs that want a %s wait: %s", kind.value, text)
            self._on_change()

    def _reflector(self, kind: ChildKind, scope: Scope) -> Reflector[Child]:
        return Reflector(self._client, scope, self._caches.children[kind], lambda obj: Child.from_api(kind, obj))
