"""What others notice of an attack: a round trip of theirs, one after the other, undisturbed and while it goes on.

Each attack has such a bystander, which fits what is attacked. No test asserts a time; `conftest` prints the figures.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from tests.waiting import until, until_async

SAMPLES = int(os.environ.get("ATTACK_SAMPLES", "10"))
"""Round trips without the attack, and at least as many while it goes on."""
_MOST_SECONDS = 15.0
"""An attack is not prolonged further for a bystander that is slow."""
_PAUSE = 0.005
FIGURES: list["Bystander"] = []
"""The bystanders of the test that runs."""


@dataclass
class Bystander:
    """The milliseconds of all its round trips. A round trip counts where it ends."""

    what: str
    undisturbed: list[float] = field(default_factory=list)
    attacked: list[float] = field(default_factory=list)
    begun: float | None = None
    """When the attack began."""
    over: bool = False
    """It measures no more: the attack is over, or a round trip has failed."""

    def begin(self) -> None:
        """The attack begins now."""
        self.begun = time.perf_counter()
        self.attacked.clear()

    def add(self, seconds: float) -> None:
        """Keep a round trip."""
        (self.undisturbed if self.begun is None else self.attacked).append(seconds * 1000)

    def measured(self) -> bool:
        """Return whether this stage has all its samples, or the attack has gone on for long enough."""
        if self.begun is None or self.over:
            return self.over or len(self.undisturbed) >= SAMPLES
        late = time.perf_counter() - self.begun > _MOST_SECONDS
        return len(self.attacked) >= SAMPLES or (late and bool(self.attacked))

    async def settled(self) -> None:
        """Wait for the samples of what goes on by itself."""
        await until_async(self.measured)

    async def during(self, attack: Callable[[], Awaitable[object]]) -> None:
        """Carry an attack out, and again and again until there are all samples."""
        while True:
            await attack()
            await asyncio.sleep(0)  # an attack that waits for nothing would let nobody else run
            if self.measured():
                return

    def while_repeated(self, attack: Callable[[], object]) -> None:
        """Do the same with an attack that blocks."""
        while True:
            attack()
            if self.measured():
                return


@asynccontextmanager
async def watching(
    what: str, round_trip: Callable[[], Awaitable[float]], pause: float = _PAUSE
) -> AsyncIterator[Bystander]:
    """Measure a round trip, which returns its seconds: first undisturbed, then for as long as the context lasts."""
    found = Bystander(what)
    probing = asyncio.create_task(_probe(found, round_trip, pause))
    try:
        await found.settled()
        found.begin()
        yield found
        found.over = True
        await probing  # a round trip that is on its way belongs to the figures
    finally:
        probing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await probing
    FIGURES.append(found)


async def _probe(found: Bystander, round_trip: Callable[[], Awaitable[float]], pause: float) -> None:
    try:
        while not found.over:
            found.add(await round_trip())
            await asyncio.sleep(pause)
    finally:
        found.over = True


@contextmanager
def watching_beside(what: str, round_trip: Callable[[], float], pause: float = _PAUSE) -> Iterator[Bystander]:
    """Do the same in a thread, for a round trip that blocks."""
    found, failed = Bystander(what), list[Exception]()

    def probe() -> None:
        try:
            while not found.over:
                found.add(round_trip())
                time.sleep(pause)
        except Exception as error:
            failed.append(error)
            found.over = True

    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    try:
        until(found.measured, every=0.005)
        found.begin()
        yield found
    finally:
        found.over = True
        thread.join()
    if failed:
        raise failed[0]
    FIGURES.append(found)


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


async def timed_async(call: Callable[[], Awaitable[object]]) -> float:
    """Do the same with a coroutine."""
    started = time.perf_counter()
    await call()
    return time.perf_counter() - started
