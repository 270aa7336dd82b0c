"""How tasks of the operator wait: for an event or a time, and for an API server that is unavailable."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from pytorchjob_operator.errors import Unavailable
from pytorchjob_operator.kube.backoff import Backoff

logger = logging.getLogger(__name__)
T = TypeVar("T")


async def event_or_timeout(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, for this many seconds at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def until_available(request: Callable[[], Awaitable[T]], what: str) -> T:
    """Return what the request returns; repeat it with back-off while the API server is unavailable.

    `what` names in the log what is awaited. Raises every other error of the request.
    """
    backoff, attempt = Backoff(), 0
    while True:
        try:
            return await request()
        except Unavailable as error:
            if attempt == 0:
                logger.warning("waiting for %s: %s", what, error)
        await asyncio.sleep(backoff.delay(attempt))
        attempt += 1
