"""The watch of nodes: which jobs hear of a change, and what it costs where it is not allowed."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from pytorchjob_operator.app.node_watch import ASK_AGAIN, NodeWatch
from pytorchjob_operator.kube.backoff import Backoff
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.names import LABEL_ZONE
from tests.fakes.apiserver import FakeApi, Request, failure
from tests.waiting import until_async

NODES = "api/v1/nodes"


class Watched:
    """A watch, and the changes that it has reported."""

    def __init__(self, client: ApiClient) -> None:
        self.changes: list[frozenset[str]] = []
        self.watch = NodeWatch(client, self.changes.append, Backoff(first=0.02, cap=0.02))

    def cordoned(self) -> set[str]:
        known = (self.watch.store.get("", name) for name in ("a", "b"))
        return {node.name for node in known if node is not None and node.cordoned}


@pytest.fixture
async def watched(client: ApiClient) -> AsyncIterator[Watched]:
    found = Watched(client)
    task = asyncio.create_task(found.watch.run())
    yield found
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def put(api: FakeApi, name: str, zone: str = "", **spec: Any) -> None:
    known = api.objects.get(NODES, {}).get(("", name), {}).get("metadata", {})
    labels = {LABEL_ZONE: zone} if zone else {}
    api.put(NODES, {"metadata": {**known, "name": name, "namespace": "", "labels": labels}, "spec": spec})


def reads(api: FakeApi) -> list[Request]:
    return [request for request in api.requests if request.path.endswith("/nodes")]


async def test_nodes_are_not_read_before_a_job_is_there(api: FakeApi, watched: Watched) -> None:
    await asyncio.sleep(0.05)
    assert reads(api) == []


async def test_a_change_of_an_announcement_is_reported_and_a_heartbeat_is_not(api: FakeApi, watched: Watched) -> None:
    put(api, "a")
    put(api, "b", unschedulable=True)
    watched.watch.want()
    await until_async(lambda: watched.changes == [{"b"}])
    put(api, "b", unschedulable=True)
    put(api, "a", unschedulable=True)
    await until_async(lambda: watched.changes == [{"b"}, {"a"}])
    assert watched.cordoned() == {"a", "b"}
    put(api, "a")
    await until_async(lambda: watched.changes == [{"b"}, {"a"}, {"a"}])
    assert watched.cordoned() == {"b"}


async def test_a_zone_is_reported_once(api: FakeApi, watched: Watched) -> None:
    put(api, "a", "eu-1a")
    put(api, "b")
    watched.watch.want()
    await until_async(lambda: watched.changes == [{"a"}])
    put(api, "a", "eu-1a")
    put(api, "b", "eu-1b")
    await until_async(lambda: watched.changes == [{"a"}, {"b"}])
    known = (watched.watch.store.get("", name) for name in ("a", "b"))
    assert [node and node.zone for node in known] == ["eu-1a", "eu-1b"]


async def test_without_the_right_it_asks_now_and_then_and_logs_once(
    api: FakeApi, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    api.failing = lambda request: failure(403, "Forbidden", "nodes is forbidden") if request in reads(api) else None
    with caplog.at_level(logging.INFO, "pytorchjob_operator.app.node_watch"):
        watched.watch.want()
        await until_async(lambda: len(reads(api)) >= 3)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    put(api, "a", unschedulable=True)
    api.failing = lambda request: None
    await until_async(lambda: watched.changes == [{"a"}])


def test_where_it_is_not_allowed_it_soon_asks_every_few_minutes_only() -> None:
    delays = [ASK_AGAIN.delay(attempt) for attempt in range(10)]
    assert min(delays) >= 15
    assert 300 <= delays[-1] <= 600
