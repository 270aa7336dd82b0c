"""The API server's public keys: fetched, kept when it is away, fetched again when a token needs it."""

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web

from pytorchjob_operator.app.key_ring import DISCOVERY_PATH, KEYS_PATH, KeyRing
from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube.client import ApiClient
from tests.fakes.apiserver import FakeApi, Request, failure
from tests.fakes.tokens import ISSUER, Signer
from tests.waiting import until_async


class Published:
    """What the API server answers; tests change it."""

    def __init__(self, api: FakeApi) -> None:
        self.signers = [Signer("key-1", "ES256")]
        self.issuer: web.Response | None = None
        self.faults: list[web.Response] = []
        self.fetched = 0
        api.failing = self.answer

    def answer(self, request: Request) -> web.Response | None:
        if request.path == DISCOVERY_PATH:
            return self.issuer or web.json_response({"issuer": ISSUER})
        if request.path != KEYS_PATH:
            return None
        self.fetched += 1
        if request.headers["Accept"] != "*/*":  # as an API server, which has another media type here
            return failure(406, "NotAcceptable")
        if self.faults:
            return self.faults.pop(0)
        return web.json_response({"keys": [signer.jwk() for signer in self.signers]})


@pytest.fixture
def published(api: FakeApi) -> Published:
    return Published(api)


async def test_the_keys_and_the_issuer_are_read(published: Published, client: ApiClient) -> None:
    ring = KeyRing(client)
    await ring.load()
    assert (list(ring.keys), ring.issuer) == (["key-1"], ISSUER)


async def test_an_api_server_that_is_away_is_waited_for(published: Published, client: ApiClient) -> None:
    published.faults = [failure(503, "ServiceUnavailable"), web.json_response({"keys": []})]
    ring = KeyRing(client)
    await ring.load()
    assert (list(ring.keys), published.fetched) == (["key-1"], 3)


@pytest.mark.parametrize("status", [403, 404])
async def test_an_api_server_that_refuses_its_keys_is_named_with_what_to_do(
    published: Published, client: ApiClient, status: int
) -> None:
    published.faults = [failure(status, "Forbidden" if status == 403 else "NotFound", "its words")]
    with pytest.raises(OperatorError, match="its words; bind the ClusterRole system:service-account-issuer-discovery"):
        await KeyRing(client).load()


async def test_an_issuer_that_is_not_published_is_unknown(published: Published, client: ApiClient) -> None:
    published.issuer = failure(404, "NotFound")
    ring = KeyRing(client)
    await ring.load()
    assert ring.issuer == ""


async def renewing(ring: KeyRing, change: Callable[[], None], reached: Callable[[], bool]) -> None:
    """Run the ring, change something, ask for the keys, and wait."""
    task = asyncio.create_task(ring.run())
    change()
    ring.refresh()
    await until_async(reached)
    task.cancel()


async def test_a_new_key_is_found_when_it_is_asked_for_and_an_old_one_is_dropped(
    published: Published, client: ApiClient
) -> None:
    ring = KeyRing(client, pause=0.0)
    await ring.load()
    new = [Signer("key-2", "ES256")]
    await renewing(ring, lambda: setattr(published, "signers", new), lambda: list(ring.keys) == ["key-2"])


async def test_known_keys_outlive_a_fetch_that_fails(published: Published, client: ApiClient) -> None:
    ring = KeyRing(client, pause=0.0)
    await ring.load()
    before = published.fetched
    faults = [failure(503, "ServiceUnavailable")]
    await renewing(ring, lambda: setattr(published, "faults", faults), lambda: published.fetched > before)
    assert list(ring.keys) == ["key-1"]


async def test_however_often_it_is_asked_for_the_keys_it_pauses_between_two_fetches(
    published: Published, client: ApiClient
) -> None:
    ring = KeyRing(client, pause=3600.0)
    await ring.load()
    task = asyncio.create_task(ring.run())
    for _ in range(100):
        ring.refresh()
        await asyncio.sleep(0)
    task.cancel()
    assert published.fetched == 1


async def test_without_being_asked_they_are_renewed(published: Published, client: ApiClient) -> None:
    ring = KeyRing(client, pause=0.0, renew=0.01)
    await ring.load()
    task = asyncio.create_task(ring.run())
    await until_async(lambda: published.fetched > 2)
    task.cancel()
