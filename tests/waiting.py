"""Waiting for something to become true, with a bound that only a broken program reaches."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from inspect import isawaitable
from typing import TypeVar, cast

T = TypeVar("T")
SECONDS = 240.0
"""Seconds that only a broken program needs."""

Story = str | Callable[[], str]
"""What explains a wait in vain: a text, or a function that makes one then."""


def until(holds: Callable[[], T], seconds: float = SECONDS, story: Story = "", *, every: float = 0.05) -> T:
    """Return the first true answer; fail the test with the story if none comes within `seconds`."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, _in_vain(story, seconds)
        time.sleep(every)
    return found


async def until_async(
    holds: Callable[[], Awaitable[T] | T], seconds: float = SECONDS, story: Story = "", *, every: float = 0.01
) -> T:
    """Do the same while other tasks go on; the question may be a coroutine function, and must not block."""
    end = time.monotonic() + seconds
    while not (found := await _answer(holds)):
        assert time.monotonic() < end, _in_vain(story, seconds)
        await asyncio.sleep(every)
    return found


async def becomes(holds: Callable[[], T], seconds: float = SECONDS, story: Story = "", *, every: float = 0.3) -> T:
    """Do the same while other tasks go on, for a question that blocks: mostly one that starts a process."""
    return await asyncio.to_thread(until, holds, seconds, story, every=every)


def again(story: Callable[[int], T], times: int = 3) -> T:
    """Tell a story that needs its seconds, and tell it again if a machine that stood still has spoilt it.

    It gets the number of its telling, from 0, and may take more time in later ones. What is broken spoils each of them.
    """
    for number in range(times - 1):
        with suppress(Exception):
            return story(number)
    return story(times - 1)


async def again_async(story: Callable[[int], Awaitable[T]], times: int = 3) -> T:
    """Do the same with a story that is a coroutine."""
    for number in range(times - 1):
        with suppress(Exception):
            return await story(number)
    return await story(times - 1)


async def connections_close() -> None:
    """Wait until this loop has no open connection; call it when all clients of the loop are closed.

    A client that is cancelled at the moment when its TLS handshake ends owns no connection yet. asyncio then
    ends the TLS connection by itself. A loop that ends before the server answers leaves the socket to the collector,
    which warns in the middle of a later test.
    """
    # Every event loop of Unix has this attribute. No public interface lists the transports.
    transports = asyncio.get_running_loop()._transports  # type: ignore[attr-defined]
    await until_async(lambda: not any(map(_is_open, transports.values())), story=lambda: f"open: {dict(transports)}")


def _is_open(transport: asyncio.BaseTransport) -> bool:
    return bool(transport.get_extra_info("socket").fileno() != -1)


async def _answer(holds: Callable[[], Awaitable[T] | T]) -> T:
    found = holds()
    return cast(T, await found) if isawaitable(found) else found


def _in_vain(story: Story, seconds: float) -> str:
    text = story() if callable(story) else story
    return f"did not come true within {seconds:.0f} s{f': {text}' if text else ''}"


@contextmanager
def held_by_another_thread(lock: AbstractContextManager[object]) -> Iterator[None]:
    """Let another thread have the lock, as one that comes back from no call."""
    has_it, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            has_it.set()
            over.wait(SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    assert has_it.wait(SECONDS)
    yield
    over.set()
    thread.join()
