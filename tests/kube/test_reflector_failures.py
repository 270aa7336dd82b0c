"""How a reflector goes on after failures: it resumes the watch, or lists again."""

import asyncio
from contextlib import suppress

import pytest
from aiohttp import web

from pytorchjob_operator.kube.backoff import Backoff
from pytorchjob_operator.kube.client import ApiClient, Scope
from pytorchjob_operator.kube.reflector import Reflector, ReflectorSettings
from pytorchjob_operator.kube.resource import PODS
from pytorchjob_operator.kube.store import Store
from tests.fakes.apiserver import FakeApi, Request, failure
from tests.fakes.values import Item
from tests.waiting import until_async

SETTINGS = ReflectorSettings(steady=600.0, backoff=Backoff(first=0.001, cap=0.005))


def refuse_watches(api: FakeApi, status: int, number: int) -> None:
    """Answer the next watches of the server with an error."""
    left = iter(range(number))

    def fail(request: Request) -> web.Response | None:
        return failure(status, "Fault") if request.verb == "watch" and next(left, None) is not None else None

    api.failing = fail


@pytest.mark.parametrize(
    ("status", "failures", "lists"),
    [
        pytest.param(500, 4, 1, id="four failures: it resumes"),
        pytest.param(500, 5, 2, id="five failures: it lists again, in case its version is the reason"),
        pytest.param(500, 9, 2, id="nine failures: once"),
        pytest.param(500, 10, 3, id="ten failures: twice"),
        pytest.param(410, 1, 2, id="the history is gone: it lists at once"),
        pytest.param(403, 1, 2, id="a refusal: it lists at once"),
    ],
)
async def test_watches_that_fail(api: FakeApi, client: ApiClient, status: int, failures: int, lists: int) -> None:
    refuse_watches(api, status, failures)
    store: Store[Item] = Store(asyncio.get_running_loop().time)
    reflector = Reflector(client, Scope(PODS, None, "app=ours"), store, Item.decode, SETTINGS)
    task = asyncio.create_task(reflector.run())
    await until_async(lambda: reflector.counters.watches == 1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert (reflector.counters.failures, reflector.counters.lists) == (failures, lists)
