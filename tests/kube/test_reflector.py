"""The reflector, against a server with every fault there is: in the end the store equals the server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator.kube.backoff import Backoff
from pytorchjob_operator.kube.client import ApiClient, Scope
from pytorchjob_operator.kube.reflector import Reflector, ReflectorSettings
from pytorchjob_operator.kube.resource import PODS
from pytorchjob_operator.kube.store import Store
from tests.fakes.apiserver import FakeApi, Request, failure
from tests.fakes.values import Item
from tests.waiting import until_async

POD_PATH = "api/v1/pods"
QUICK = ReflectorSettings(page=2, steady=0.1, backoff=Backoff(first=0.01, cap=0.05))
IMPATIENT = replace(QUICK, silence=0.3)
"""Where a watch is silent. On a busy machine each watch is at times, so no test with it counts watches."""


def pod(name: str, app: str = "ours") -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"app": app, "job": "job"}}}


class Seen:
    """A reflector that runs, and what it put into its store."""

    def __init__(self, client: ApiClient, settings: ReflectorSettings = QUICK) -> None:
        self.store: Store[Item] = Store(asyncio.get_running_loop().time)
        scope = Scope(PODS, None, "app=ours")
        self.reflector = Reflector(client, scope, self.store, Item.decode, settings)

    def names(self) -> list[str]:
        return sorted(item.name for item in self.store.by_owner("job"))


@asynccontextmanager
async def watching(client: ApiClient, settings: ReflectorSettings = QUICK) -> AsyncIterator[Seen]:
    seen = Seen(client, settings)
    task = asyncio.create_task(seen.reflector.run())
    try:
        yield seen
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_it_lists_in_pages_and_then_watches(api: FakeApi, client: ApiClient) -> None:
    for name in "abc":
        api.put(POD_PATH, pod(name))
    async with watching(client) as seen:
        await seen.reflector.synced.wait()
        assert seen.names() == ["a", "b", "c"]
        api.put(POD_PATH, pod("d"))
        api.remove(POD_PATH, "a")
        await until_async(lambda: seen.names() == ["b", "c", "d"])
    assert seen.reflector.counters.lists == 1


async def test_the_selector_is_on_the_wire(api: FakeApi, client: ApiClient) -> None:
    async with watching(client) as seen:
        await until_async(lambda: seen.reflector.counters.watches == 1)
    assert [request.query["labelSelector"] for request in api.requests] == ["app=ours", "app=ours"]


async def test_an_orderly_end_costs_one_watch_and_no_list(api: FakeApi, client: ApiClient) -> None:
    async with watching(client) as seen:
        await until_async(lambda: api.count("watch") == 1)
        api.end_watches()
        await until_async(lambda: api.count("watch") == 2)
        api.put(POD_PATH, pod("a"))
        await until_async(lambda: seen.names() == ["a"])
    assert seen.reflector.counters.lists == 1


async def _restored(api: FakeApi, seen: Seen) -> None:
    """The server's data goes back to an older copy, which has another pod."""
    await until_async(lambda: seen.names() == ["a", "b"])
    api.objects.clear()
    api.version, api.history = 50, []
    api.put(POD_PATH, pod("old"))


def _compacted(api: FakeApi) -> None:
    api.end_watches()
    api.version += 1
    api.compact()


def _compacted_in_stream(api: FakeApi) -> None:
    api.expire_in_stream = True
    _compacted(api)


def _stormy(api: FakeApi) -> None:
    left = iter(range(12))
    api.failing = lambda request: failure(500, "Internal") if next(left, None) is not None else None
    api.cut()


def _refusing(api: FakeApi) -> None:
    left = iter(range(3))
    api.failing = lambda request: failure(403, "Forbidden") if next(left, None) is not None else None
    api.cut()


def _hanging(api: FakeApi) -> None:
    api.hang()
    api.cut()
    asyncio.get_running_loop().call_later(0.7, api.hang, False)


def _mute(api: FakeApi) -> None:
    def speak() -> None:
        api.mute = False
        api.end_watches()

    api.mute = True
    asyncio.get_running_loop().call_later(0.5, speak)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(FakeApi.cut, id="a connection is cut"),
        pytest.param(_compacted, id="history is gone: 410"),
        pytest.param(_compacted_in_stream, id="history is gone: 410 after a 200"),
        pytest.param(_stormy, id="a storm of 500s"),
        pytest.param(_refusing, id="a moment without the right to list"),
        pytest.param(_hanging, id="a server that hangs"),
        pytest.param(_mute, id="a watch that sends nothing"),
    ],
)
async def test_it_heals_and_nothing_is_left_behind(
    api: FakeApi, client: ApiClient, fault: Callable[[FakeApi], None]
) -> None:
    api.put(POD_PATH, pod("dies in the gap"))
    api.put(POD_PATH, pod("stays"))
    async with watching(client, IMPATIENT) as seen:
        await until_async(lambda: seen.reflector.counters.watches == 1)
        fault(api)
        api.remove(POD_PATH, "dies in the gap")
        api.put(POD_PATH, pod("made in the gap"))
        await until_async(lambda: seen.names() == ["made in the gap", "stays"])


async def test_what_died_in_a_gap_of_history_is_swept(api: FakeApi, client: ApiClient) -> None:
    api.put(POD_PATH, pod("a"))
    async with watching(client) as seen:
        await until_async(lambda: seen.names() == ["a"])
        api.failing = lambda request: failure(503, "ServiceUnavailable")
        api.cut()
        api.remove(POD_PATH, "a")
        api.compact()
        api.failing = lambda request: None
        await until_async(lambda: seen.names() == [])
    assert seen.reflector.counters.swept == 1


async def test_a_silent_watch_is_opened_again(api: FakeApi, client: ApiClient) -> None:
    api.mute = True
    async with watching(client, IMPATIENT) as seen:
        await until_async(lambda: seen.reflector.counters.watches >= 3)
    assert seen.reflector.counters.failures >= 2


async def test_watches_that_end_at_once_are_slowed_down(api: FakeApi, client: ApiClient) -> None:
    settings = replace(QUICK, backoff=Backoff(first=0.05, cap=30.0, spread=lambda: 1.0), steady=60.0)
    clock = asyncio.get_running_loop().time
    began = clock()
    async with watching(client, settings) as seen:
        await until_async(lambda: api.count("watch") == 1)
        for _ in range(40):
            api.end_watches()
            await asyncio.sleep(0.01)
        took, watches = clock() - began, seen.reflector.counters.watches
    assert watches < 20
    assert took >= sum(0.05 * 2**waits for waits in range(watches - 1))


async def test_a_server_restored_from_an_older_copy_is_believed(api: FakeApi, client: ApiClient) -> None:
    api.put(POD_PATH, pod("a"))
    api.put(POD_PATH, pod("b"))
    async with watching(client) as seen:
        await _restored(api, seen)
        _compacted(api)
        api.failing = lambda request: failure(410, "Expired") if request.verb == "watch" and _ahead(request) else None
        api.cut()
        await until_async(lambda: seen.names() == ["old"])


async def test_a_restored_server_that_accepts_a_watch_from_the_future_is_believed(
    api: FakeApi, client: ApiClient
) -> None:
    """A real API server does not refuse such a watch: it is silent until it reaches that version."""
    api.put(POD_PATH, pod("a"))
    api.put(POD_PATH, pod("b"))
    async with watching(client, IMPATIENT) as seen:
        await _restored(api, seen)
        api.cut()
        await until_async(lambda: seen.names() == ["old"])


async def test_a_server_restored_between_the_list_and_the_watch_is_believed(api: FakeApi, client: ApiClient) -> None:
    """Nothing interrupts such a watch: it is silent from its beginning to its regular end."""
    api.put(POD_PATH, pod("a"))

    def restore(request: Request) -> None:
        if request.verb == "watch" and api.version > 100:
            api.objects.clear()
            api.version, api.history = 50, []
            api.put(POD_PATH, pod("old"))

    api.failing = restore
    async with watching(client, replace(QUICK, lasting=(0.0, 0.0))) as seen:

        def ended() -> bool:
            api.end_watches()
            return seen.names() == ["old"]

        await until_async(ended)


async def test_versions_that_fall_within_a_watch_are_those_of_a_restored_server(
    api: FakeApi, client: ApiClient
) -> None:
    api.put(POD_PATH, pod("a"))
    async with watching(client) as seen:
        await until_async(lambda: seen.reflector.counters.watches == 1)
        api.objects.clear()
        api.version = 50
        api.history = [(200, "api/v1/pods", "ADDED", api.put(POD_PATH, pod("old")))]
        await until_async(lambda: seen.names() == ["old"])


async def test_a_refresh_shows_what_the_watch_has_not_told(api: FakeApi, client: ApiClient) -> None:
    async with watching(client) as seen:
        await until_async(lambda: seen.reflector.counters.watches == 1)
        api.mute = True
        api.put(POD_PATH, pod("a"))
        await seen.reflector.refresh()
        assert seen.names() == ["a"]


def _ahead(request: Any) -> bool:
    return int(request.query["resourceVersion"]) > 90


async def test_reflectors_of_two_namespaces_fill_one_store(api: FakeApi, client: ApiClient) -> None:
    store: Store[Item] = Store(asyncio.get_running_loop().time)
    for namespace in ("one", "two"):
        api.put(POD_PATH, {"metadata": {"name": namespace, "namespace": namespace}})
    reflectors = [Reflector(client, Scope(PODS, namespace), store, Item.decode, QUICK) for namespace in ("one", "two")]
    tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    await until_async(lambda: all(reflector.synced.is_set() for reflector in reflectors))
    assert sorted(item.name for item in store.by_owner("job")) == ["one", "two"]
    for task in tasks:
        task.cancel()


async def test_a_decoder_with_a_bug_does_not_end_it(api: FakeApi, client: ApiClient) -> None:
    broken = [True]

    def decode(obj: dict[str, Any]) -> Item:
        if broken.pop() if broken else False:
            raise ValueError("a bug")
        return Item.decode(obj)

    api.put(POD_PATH, pod("a"))
    async with watching(client) as seen:
        seen.reflector._decode = decode
        await until_async(lambda: seen.names() == ["a"])
    assert seen.reflector.counters.failures == 1


async def test_the_age_of_the_last_contact(api: FakeApi, client: ApiClient) -> None:
    loop = asyncio.get_running_loop()
    seen = Seen(client)
    assert seen.reflector.last_contact_age(loop.time()) == float("inf")
    async with watching(client) as other:
        await other.reflector.synced.wait()
        assert other.reflector.last_contact_age(loop.time() + 100) >= 100
        await until_async(lambda: other.reflector.last_contact_age(loop.time()) < 1)
