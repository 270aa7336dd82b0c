"""The nodes that plans ask for: read one by one, and remembered for a few seconds.

Nodes are not watched: the heartbeats of thousands of them are nobody's news here, and a plan asks for one only when a
pod on it does not end. A node that cannot be read is unknown, which never costs a pod its life.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from pytorchjob_operator.errors import ApiError, NotFound, Refused
from pytorchjob_operator.kube.client import Client
from pytorchjob_operator.kube.resource import NODES
from pytorchjob_operator.observed import NodeHealth, NodeState

logger = logging.getLogger(__name__)

FRESH = timedelta(seconds=5)
"""How long an answer is good for: the pods of one node are often those of several jobs."""
_IN_FLIGHT = 16


class Nodes:
    """Reads nodes, and knows those that were read just now."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._read: dict[str, tuple[datetime, NodeState]] = {}
        self._gate = asyncio.Semaphore(_IN_FLIGHT)
        self._forbidden = False

    def known(self, now: datetime) -> dict[str, NodeState]:
        """The states that are still good; the others are forgotten."""
        self._read = {name: one for name, one in self._read.items() if abs(now - one[0]) < FRESH}
        return {name: state for name, (_, state) in self._read.items()}

    async def read(self, names: Iterable[str], now: datetime) -> None:
        """Ask for these nodes; raises nothing, a node that cannot be read is unknown."""
        await asyncio.gather(*(self._one(name, now) for name in names))

    async def _one(self, name: str, now: datetime) -> None:
        async with self._gate:
            self._read[name] = now, await self._state(name)

    async def _state(self, name: str) -> NodeState:
        try:
            return NodeState.from_api(await self._client.get(NODES, None, name))
        except NotFound:
            return NodeState(NodeHealth.GONE)
        except Refused as error:
            self._tell_forbidden(error)
        except ApiError as error:
            logger.warning("node %s cannot be read, its pods are left alone for now: %s", name, error)
        return NodeState(NodeHealth.UNKNOWN)

    def _tell_forbidden(self, error: Refused) -> None:
        """Say once what the operator lacks."""
        if not self._forbidden:
            self._forbidden = True
            logger.warning(
                "pods that are stuck on dead nodes stay where they are, because nodes cannot be read: %s; to have them"
                " deleted, let the operator's account get nodes in a ClusterRole (chart: rbac.nodes=true)",
                error,
            )
