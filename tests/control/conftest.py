from collections.abc import AsyncIterator

import pytest

from tests.control.world import World, a_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as world:
        yield world
