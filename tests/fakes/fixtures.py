"""A fake API server per test, and a client that talks to it; a conftest that imports them gives them to its tests."""

from collections.abc import AsyncIterator

import pytest

from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from tests.fakes.apiserver import FakeApi, serving
from tests.waiting import SECONDS


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """The server."""
    async with serving() as server:
        yield server


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[ApiClient]:
    """The client."""
    async with ApiClient(ApiEndpoint(api.url), "test/1", request_timeout=SECONDS) as one:
        yield one
