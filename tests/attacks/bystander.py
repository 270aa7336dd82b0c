"""An honest job beside an attack: its agents over TLS or without, a round of it, and how soon it is answered."""

import asyncio
import contextlib
import os
import random
import ssl
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pytorchjob_agent.contract.messages import HEARTBEAT_SECONDS, Heartbeat, Hello, Join, Resumed, RoundId, ToAgent
from tests.coordinator.talking import Talker, hello

FIGURES: list[tuple[str, int, float]] = []
"""The test, the number of answers, and the milliseconds within which 99 of 100 came; `conftest` prints them."""
_UNKNOWN = Resumed(RoundId(1, 10**6), restarts=0)
"""The coordinator answers it each time."""
_EVERY = 0.02
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
    """Return a member that has its rank. Like a real agent it sends heartbeats while others still connect."""
    talker = (await dial(port, greeting, trust)).say(Join(4000 + greeting.index))
    beating = asyncio.create_task(_beat(talker))
    try:
        await talker.hear_kind("assigned")
    finally:
        beating.cancel()
    return talker


async def _beat(talker: Talker) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        talker.say(Heartbeat())


class Bystander:
    """One member of a round that measures how soon the coordinator answers."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def p99(self) -> float:
        """Milliseconds within which 99 of 100 answers came; -1 without enough of them."""
        return statistics.quantiles(self.seconds, n=100)[98] * 1000 if len(self.seconds) > 1 else -1.0

    async def probe(self, talker: Talker) -> None:
        """Ask until cancelled, and send heartbeats."""
        loop, beaten = asyncio.get_running_loop(), 0.0
        while True:
            if loop.time() - beaten > HEARTBEAT_SECONDS:
                beaten = loop.time()
                talker.say(Heartbeat(step=1))
            asked = time.perf_counter()
            await self._answer(talker.say(_UNKNOWN))
            self.seconds.append(time.perf_counter() - asked)
            await asyncio.sleep(_EVERY)

    async def _answer(self, talker: Talker) -> ToAgent:
        answer: ToAgent = await talker.hear_kind("restart")
        return answer


@asynccontextmanager
async def bystander(port: int, job: str, trust: ssl.SSLContext | None = None) -> AsyncIterator[Bystander]:
    """A job of one member that is asked all the time; its figures are printed at the end."""
    (talker,), found = await form_round(port, job, 1, trust), Bystander()
    probing = asyncio.create_task(found.probe(talker))
    try:
        yield found
        assert not probing.done(), "the bystander lost its connection"
    finally:
        probing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await probing
        talker.cut()
        attack = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        FIGURES.append((attack, len(found.seconds), found.p99()))
