"""The namespaces that plans request: read one by one, and cached for a few seconds.

A job's first pods need it, later passes do not. Without the right to read namespaces no label counts.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from pytorchjob_operator.errors import NotFound, RequestRefused
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.resource import NAMESPACES
from pytorchjob_operator.names import LABEL_AGENT
from pytorchjob_operator.observed import NamespaceState

logger = logging.getLogger(__name__)

FRESH = timedelta(seconds=5)
"""Validity of a read: many jobs are often created at once."""


class Namespaces:
    """Reads namespaces, and caches what matters of them for `FRESH`."""

    def __init__(self, client: ApiClient, clock: Callable[[], datetime]) -> None:
        self._client, self._clock = client, clock
        self._read: dict[str, tuple[datetime, NamespaceState]] = {}
        self._forbidden = False

    def known(self, name: str, now: datetime) -> NamespaceState | None:
        """Return the state that is still valid; None if it must be read."""
        self._read = {name: read for name, read in self._read.items() if abs(now - read[0]) < FRESH}
        return self._read[name][1] if name in self._read else None

    async def read(self, name: str) -> None:
        """Read a namespace. Raises ApiError if that may succeed later: pods without the agent could not be mended."""
        state = await self._state(name)
        self._read[name] = self._clock(), state

    async def _state(self, name: str) -> NamespaceState:
        try:
            return NamespaceState.from_api(await self._client.get(NAMESPACES, None, name))
        except NotFound:
            return NamespaceState()
        except RequestRefused as error:
            if not self._forbidden:
                self._forbidden = True
                logger.warning(
                    "the label %s of namespaces has no effect, as they cannot be read: %s", LABEL_AGENT, error
                )
            return NamespaceState()
