"""Waiting for something to become true, with a bound that only a broken program reaches."""

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Return as soon as `holds()`; fail the test if it does not come true."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 -- what is waited for knows nothing of events
            await asyncio.sleep(0.005)
