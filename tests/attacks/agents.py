"""Honest agents beside an attack on the coordinator: they dial as real ones do, form rounds, and are answered."""

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pytorchjob_agent.contract.messages import HEARTBEAT_SECONDS, Heartbeat, Hello, Join, Resumed, RoundId
from tests.attacks.bystander import Bystander, timed_async, watching
from tests.coordinator.talking import Talker, hello

_UNKNOWN = Resumed(RoundId(1, 10**6), restarts=0)
"""The coordinator answers it each time, unlike heartbeats."""
_EVERY = 0.02
"""Seconds between two questions: a connection may send 50 messages a second."""
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
"""An agent waits for so long before it tries again."""


async def dial(port: int, greeting: Hello, trust: ssl.SSLContext | None = None) -> Talker:
    """Connect as a real agent does, again and again until the coordinator welcomes it."""
    attempt = 0
    while True:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            talker = (await Talker.dial(port, trust)).say(greeting)
            message = await talker.hear()
            if message is not None and message.kind == "welcome":
                return talker
            talker.cut()
        await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)] * random.uniform(0.5, 1.5))
        attempt += 1


async def form_round(port: int, job: str, members: int, trust: ssl.SSLContext | None = None) -> list[Talker]:
    """Return the members of a new round of this job."""
    return list(await asyncio.gather(*(_join(port, hello(index, job=job), trust) for index in range(members))))


async def _join(port: int, greeting: Hello, trust: ssl.SSLContext | None) -> Talker:
    """Return a member that has its rank."""
    talker = (await dial(port, greeting, trust)).say(Join(4000 + greeting.index))
    async with beating(talker):
        await talker.hear_kind("assigned")
    return talker


@asynccontextmanager
async def beating(talker: Talker) -> AsyncIterator[None]:
    """Send heartbeats like a real agent: without them the coordinator takes it for lost."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            talker.say(Heartbeat(step=1))

    sending = asyncio.create_task(beat())
    try:
        yield
    finally:
        sending.cancel()


@asynccontextmanager
async def calm_agent(port: int, job: str, trust: ssl.SSLContext | None = None) -> AsyncIterator[Bystander]:
    """Measure how soon the coordinator answers the only member of another job, which sends heartbeats too."""
    (talker,) = await form_round(port, job, 1, trust)
    what = "an agent of another job: a message and its answer"
    try:
        async with beating(talker), watching(what, lambda: ask(talker), _EVERY) as found:
            yield found
    finally:
        talker.cut()


async def ask(talker: Talker) -> float:
    """Return the seconds until the coordinator answers a member of a round."""
    return await timed_async(lambda: talker.say(_UNKNOWN).hear_kind("restart"))
