"""Watches the nodes for what announces the loss of their pods, and for their zones, once a job has pods.

Kubelets renew a Lease as their heartbeat, and write a node's status every five minutes or when it changes: a cluster of
5,000 nodes sends some 17 nodes a second. Of each the store keeps a few words. Without the right to watch nodes nothing
is announced, zones are those that pods have as labels, and everything else works.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from itertools import count

from pytorchjob_operator.errors import ApiError
from pytorchjob_operator.kube.backoff import Backoff
from pytorchjob_operator.kube.client import ApiClient, Scope
from pytorchjob_operator.kube.reflector import Reflector, ReflectorSettings
from pytorchjob_operator.kube.resource import NODES
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.node import Node

logger = logging.getLogger(__name__)

ASK_AGAIN = Backoff(first=30.0, cap=600.0)
"""How often the operator asks again where it may not list nodes."""
_SETTINGS = ReflectorSettings(page=100, backoff=Backoff(first=0.2, cap=60.0))
"""A node has about ten kilobytes, most of it the list of its images."""
GATHER_SECONDS = 0.1
"""How long changes are gathered before the jobs on these nodes are reconciled: a list brings thousands of them."""


class NodeStore(Store[Node]):
    """The nodes; `on_marked(name)` is called when a node's announcement or its zone has changed."""

    def __init__(self, clock: Callable[[], float], on_marked: Callable[[str], None]) -> None:
        super().__init__(clock)
        self._on_marked = on_marked

    def put(self, item: Node, listed_at: int = 0) -> bool:
        """Store a state; False if a newer state is already stored."""
        before = self.get("", item.name)
        stored = super().put(item, listed_at)
        if stored and (before.marks != item.marks if before is not None else item.marked or item.zone):
            self._on_marked(item.name)
        return stored


class NodeWatch:
    """Fills a NodeStore; `on_change` is called with the names of the nodes that `on_marked` names."""

    def __init__(
        self,
        client: ApiClient,
        on_change: Callable[[frozenset[str]], None],
        ask_again: Backoff = ASK_AGAIN,
        conditions: Collection[str] = (),
    ) -> None:
        self._client = client
        self._conditions = conditions
        self._ask_again = ask_again
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._changed: set[str] = set()
        self.store = NodeStore(self._loop.time, self._marked)

    def want(self) -> None:
        """Watch from now on: a job has pods."""
        self._wanted.set()

    async def run(self) -> None:
        """Watch, once that is wanted and allowed, until cancelled."""
        await self._wanted.wait()
        scope = Scope(NODES)
        await self._until_allowed(scope)
        read = partial(Node.from_api, conditions=self._conditions)
        await Reflector(self._client, scope, self.store, read, _SETTINGS).run()

    async def _until_allowed(self, scope: Scope) -> None:
        for attempt in count():
            try:
                async for _ in self._client.list(scope, limit=1):
                    return
            except ApiError as error:
                if not attempt:
                    logger.info("announcements of nodes are not seen, as nodes cannot be listed: %s", error)
            await asyncio.sleep(self._ask_again.delay(attempt))

    def _marked(self, name: str) -> None:
        if not self._changed:
            self._loop.call_later(GATHER_SECONDS, self._report)
        self._changed.add(name)

    def _report(self) -> None:
        changed, self._changed = frozenset(self._changed), set()
        self._on_change(changed)
