"""Small objects of the whole cluster that plans request: flavors of a queue and classes of priority.

Read one by one, and cached for a while: few of them exist, they change rarely, and jobs are often created together.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from pytorchjob_operator.errors import NotFound, RequestRefused
from pytorchjob_operator.kube.client import ApiClient, Object, Scope
from pytorchjob_operator.kube.resource import CLUSTER_OBJECTS
from pytorchjob_operator.observed import ClusterObject

logger = logging.getLogger(__name__)

FRESH = timedelta(seconds=10)
"""Validity of a read."""


class ClusterObjects:
    """Reads objects of the cluster, and caches them for `FRESH`."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._read: dict[ClusterObject, tuple[datetime, Object | None]] = {}

    def known(self, now: datetime) -> dict[ClusterObject, Object | None]:
        """Return those that are still valid; the others are removed."""
        self._read = {each: read for each, read in self._read.items() if abs(now - read[0]) < FRESH}
        return {each: obj for each, (_, obj) in self._read.items()}

    async def read(self, wanted: Iterable[ClusterObject], now: datetime) -> None:
        """Read these objects; what does not exist, or may not be read, is None. Raises ApiError for other errors."""
        await asyncio.gather(*(self._read_one(each, now) for each in wanted))

    async def _read_one(self, wanted: ClusterObject, now: datetime) -> None:
        found = None
        try:
            found = await self._find(wanted)
        except NotFound:
            pass
        except RequestRefused as error:
            logger.warning("%s %s cannot be read: %s", wanted.kind, wanted.name, error)
        self._read[wanted] = now, found

    async def _find(self, wanted: ClusterObject) -> Object | None:
        resource = CLUSTER_OBJECTS[wanted.kind]
        if wanted.name:
            return await self._client.get(resource, None, wanted.name)
        async for page in self._client.list(Scope(resource, None)):
            for each in page.items:
                if each.get("globalDefault"):
                    return each
        return None
