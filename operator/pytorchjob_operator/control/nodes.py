"""The nodes that plans request: read one by one, and cached for a few seconds.

A decision that deletes pods reads the node itself: the watch of nodes (`app/node_watch`) may be late or not allowed. A
plan requests a node only if a pod on it does not terminate. A node that cannot be read has the state UNKNOWN, and its
pods are never deleted.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from pytorchjob_operator.errors import ApiError, NotFound, RequestRefused
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.resource import NODES
from pytorchjob_operator.observed import NodeHealth, NodeState

logger = logging.getLogger(__name__)

FRESH = timedelta(seconds=5)
"""Validity of a read: one node often runs pods of several jobs."""
_IN_FLIGHT = 16


class Nodes:
    """Reads nodes, and caches their states for `FRESH`."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._read: dict[str, tuple[datetime, NodeState]] = {}
        self._gate = asyncio.Semaphore(_IN_FLIGHT)
        self._forbidden = False

    def known(self, now: datetime) -> dict[str, NodeState]:
        """Return the states that are still valid; the others are removed."""
        self._read = {name: read for name, read in self._read.items() if abs(now - read[0]) < FRESH}
        return {name: state for name, (_, state) in self._read.items()}

    async def read(self, names: Iterable[str], now: datetime) -> None:
        """Read these nodes; raises nothing: a node that cannot be read is UNKNOWN."""
        await asyncio.gather(*(self._read_node(name, now) for name in names))

    async def _read_node(self, name: str, now: datetime) -> None:
        async with self._gate:
            self._read[name] = now, await self._state(name)

    async def _state(self, name: str) -> NodeState:
        try:
            return NodeState.from_api(await self._client.get(NODES, None, name))
        except NotFound:
            return NodeState(NodeHealth.GONE)
        except RequestRefused as error:
            self._log_forbidden(error)
        except ApiError as error:
            logger.warning("node %s cannot be read, its pods are not deleted for now: %s", name, error)
        return NodeState(NodeHealth.UNKNOWN)

    def _log_forbidden(self, error: RequestRefused) -> None:
        """Log the missing permission, once."""
        if not self._forbidden:
            self._forbidden = True
            logger.warning(
                "pods that are stuck on dead nodes are not deleted, because the operator cannot read nodes: %s; to have"
                " them deleted, allow its service account to get nodes by a ClusterRole (chart: rbac.nodes=true)",
                error,
            )
