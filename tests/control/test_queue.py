"""The work queue: no key lost, none twice at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from pytorchjob_operator.control.queue import Handler, WorkQueue
from pytorchjob_operator.errors import ApiError, RequestRefused, Unavailable
from pytorchjob_operator.kube.backoff import Backoff
from tests.waiting import SECONDS, until_async

QUICK = Backoff(first=0.01, cap=0.05)
FIXED = Backoff(first=1.0, cap=300.0, spread=lambda: 1.0)


@asynccontextmanager
async def served(queue: WorkQueue[str], handler: Handler[str], workers: int = 4) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run(handler, workers))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Desk:
    """A handler that records its keys, and works until its gate opens."""

    def __init__(self, open_: bool = True) -> None:
        self.done: list[str] = []
        self.busy: list[str] = []
        self.most: dict[str, int] = {}
        self.gate = asyncio.Event()
        if open_:
            self.gate.set()

    async def __call__(self, key: str) -> None:
        self.busy.append(key)
        self.most[key] = max(self.most.get(key, 0), self.busy.count(key))
        await self.gate.wait()
        self.busy.remove(key)
        self.done.append(key)


async def test_a_key_that_waits_is_not_doubled() -> None:
    queue, desk = WorkQueue[str](), Desk()
    for key in "abaab":
        queue.add(key)
    assert len(queue) == 2
    async with served(queue, desk):
        await until_async(lambda: len(desk.done) == 2)
    assert desk.done == ["a", "b"]


async def test_a_key_added_while_it_is_worked_on_comes_once_more_and_alone() -> None:
    queue, desk = WorkQueue[str](), Desk(open_=False)
    async with served(queue, desk):
        queue.add("a")
        await until_async(lambda: desk.busy == ["a"])
        for _ in range(3):
            queue.add("a")
        desk.gate.set()
        await until_async(lambda: desk.done == ["a", "a"] and not queue.active)
    assert (desk.most, len(queue)) == ({"a": 1}, 0)


async def test_different_keys_are_worked_on_together() -> None:
    queue, desk = WorkQueue[str](), Desk(open_=False)
    async with served(queue, desk, workers=2):
        for key in "abc":
            queue.add(key)
        await until_async(lambda: desk.busy == ["a", "b"])
        assert (queue.active, len(queue)) == (2, 1)


@pytest.mark.parametrize(
    ("wishes", "first"),
    [
        pytest.param([30.0, 0.01], True, id="a sooner wish replaces a later one"),
        pytest.param([0.01, 30.0], True, id="a later wish does not delay"),
        pytest.param([30.0], False, id="not before its time"),
        pytest.param([-5.0], True, id="a time that has passed is now"),
    ],
)
async def test_deadlines(wishes: list[float], first: bool) -> None:
    queue, desk = WorkQueue[str](), Desk()
    async with served(queue, desk):
        for seconds in wishes:
            queue.add_after("a", seconds)
        queue.add_after("marker", 0.05)
        await until_async(lambda: "marker" in desk.done)
    assert desk.done == (["a", "marker"] if first else ["marker"])


async def test_back_off_doubles_up_to_its_cap_and_starts_again_when_forgotten() -> None:
    queue = WorkQueue[str](FIXED)
    assert [queue.retry("a") for _ in range(10)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert queue.retry("b") == 1
    queue.forget("a")
    assert queue.retry("a", at_least=7.0) == 7.0


async def test_a_handler_that_fails_is_tried_again_until_it_works() -> None:
    queue, tries = WorkQueue[str](QUICK), []

    async def handler(key: str) -> None:
        tries.append(key)
        if len(tries) < 4:
            raise ValueError("not yet")

    async with served(queue, handler):
        queue.add("a")
        await until_async(lambda: len(tries) == 4 and not queue.active)
    assert queue._attempts == {}


async def test_the_server_says_when_to_come_back() -> None:
    queue = WorkQueue[str](QUICK)

    async def handler(key: str) -> None:
        raise Unavailable(429, "TooManyRequests", "slow down", retry_after=30.0)

    async with served(queue, handler):
        queue.add("a")
        await until_async(lambda: bool(queue._timers))
        assert queue._timers["a"].when() > asyncio.get_running_loop().time() + 20


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        pytest.param(Unavailable(0, "Timeout", "no answer"), 30.0, id="a server that was away is asked soon"),
        pytest.param(RequestRefused(403, "Forbidden", "over quota"), 256.0, id="a refusal can wait"),
    ],
)
async def test_a_long_back_off(error: ApiError, seconds: float) -> None:
    queue = WorkQueue[str](FIXED)
    queue._attempts["a"] = 8

    async def handler(key: str) -> None:
        raise error

    async with served(queue, handler):
        queue.add("a")
        await until_async(lambda: bool(queue._timers))
        wait = queue._timers["a"].when() - asyncio.get_running_loop().time()
        assert seconds / 2 < wait <= seconds


async def test_a_handler_that_asks_for_a_retry_keeps_its_back_off() -> None:
    queue = WorkQueue[str](Backoff(0.01, 1.0, lambda: 1.0))
    waits: list[float] = []

    async def handler(key: str) -> None:
        if len(waits) < 3:
            waits.append(queue.retry(key))

    async with served(queue, handler):
        queue.add("a")
        await until_async(lambda: len(waits) == 3 and not queue._attempts)
    assert waits == [0.01, 0.02, 0.04]


async def test_stop_finishes_what_is_in_hand_and_takes_no_more() -> None:
    queue, desk = WorkQueue[str](), Desk(open_=False)
    task = asyncio.create_task(queue.run(desk, workers=1))
    queue.add("a")
    queue.add_after("later", 0.01)
    await until_async(lambda: desk.busy == ["a"])
    queue.add("b")
    queue.stop()
    desk.gate.set()
    await asyncio.wait_for(task, SECONDS)
    assert desk.done == ["a"]


async def test_a_namespace_full_of_keys_does_not_delay_another() -> None:
    """Sixteen long passes of one lane; a key of another lane does not wait for any of them."""
    queue, desk = WorkQueue[str](lane=lambda key: key[0]), Desk(open_=False)
    async with served(queue, desk):
        for index in range(16):
            queue.add(f"a{index}")
        await until_async(lambda: len(desk.busy) == 4)
        queue.add("b")
        await until_async(lambda: "b" in desk.busy)
        assert len(desk.busy) == 5
        desk.gate.set()
        await until_async(lambda: len(desk.done) == 17)


async def test_lanes_take_turns() -> None:
    queue, desk = WorkQueue[str](lane=lambda key: key[0]), Desk()
    for key in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.add(key)
    async with served(queue, desk, workers=1):
        await until_async(lambda: len(desk.done) == 6)
    assert desk.done == ["a1", "b1", "c1", "a2", "b2", "a3"]
