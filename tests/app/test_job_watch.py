"""kopf's part: every event arrives, nothing is written, and nothing that ends kopf ends the watch for good."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pytorchjob_operator.app.job_watch import Contacts, JobWatch, build_registry
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from tests.app.kopf_api import broken_watch, discovery, first
from tests.factories import make_job
from tests.fakes.apiserver import FakeApi, serving
from tests.waiting import until_async

JOBS = "apis/kubeflow.org/v1/pytorchjobs"
SEEN = list[tuple[str | None, str]]


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving() as server:
        server.failing = discovery
        yield server


@asynccontextmanager
async def watching(api: FakeApi, *namespaces: str) -> AsyncIterator[tuple[JobWatch, SEEN]]:
    seen: SEEN = []

    def note(kind: str | None, obj: dict[str, Any]) -> None:
        seen.append((kind, obj["metadata"]["name"]))

    contacts = Contacts()
    registry = build_registry(ApiEndpoint(api.url), "pytorchjob-operator/test", note, contacts)
    watch = JobWatch(registry, namespaces, contacts)
    watch.start()
    try:
        yield watch, seen
    finally:
        stopper = threading.Thread(target=watch.stop)
        stopper.start()
        api.end_watches()
        await until_async(lambda: not stopper.is_alive())


def put(api: FakeApi, name: str) -> None:
    api.put(JOBS, make_job(name=name, meta={"uid": f"uid-{name}"}).to_api())


async def test_what_is_there_and_what_comes_and_goes_is_told(api: FakeApi) -> None:
    put(api, "old")
    async with watching(api) as (_, seen):
        await until_async(lambda: (None, "old") in seen)
        put(api, "new")
        api.remove(JOBS, "old", "ns")
        await until_async(lambda: {("ADDED", "new"), ("DELETED", "old")} <= set(seen))


async def test_nothing_is_ever_written_and_every_request_says_who_asks(api: FakeApi) -> None:
    async with watching(api) as (_, seen):
        put(api, "x")
        await until_async(lambda: bool(seen))
        put(api, "x")
        await until_async(lambda: len(seen) > 1)
    assert {request.method for request in api.requests} == {"GET"}
    assert {request.headers["User-Agent"] for request in api.requests} == {"pytorchjob-operator/test"}


async def test_confined_to_a_namespace_it_asks_for_no_other(api: FakeApi) -> None:
    async with watching(api, "ns") as (_, seen):
        put(api, "x")
        await until_async(lambda: bool(seen))
    paths = {request.path for request in api.requests if request.path.endswith("/pytorchjobs")}
    assert paths == {"/apis/kubeflow.org/v1/namespaces/ns/pytorchjobs"}


@pytest.mark.parametrize(
    ("fault", "restarts"),
    [
        pytest.param(lambda: broken_watch(500), 1, id="the stream reports 500, which ends kopf"),
        pytest.param(lambda: broken_watch(410), 0, id="the stream reports 410: the history is gone"),
    ],
)
async def test_a_watch_that_breaks_begins_anew(api: FakeApi, fault: Callable[[], Any], restarts: int) -> None:
    api.failing = first(1, fault)
    async with watching(api) as (watch, seen):
        put(api, "x")
        await until_async(lambda: ("ADDED", "x") in seen or (None, "x") in seen)
        put(api, "y")
        await until_async(lambda: ("ADDED", "y") in seen or (None, "y") in seen)
        assert (watch.alive, watch.restarts) == (True, restarts)


async def test_a_silent_watch_shows_in_the_age_of_its_last_contact(api: FakeApi) -> None:
    """Also data that kopf hides, such as bookmarks, counts as contact."""
    async with watching(api) as (watch, seen):
        put(api, "x")
        await until_async(lambda: bool(seen))
        await until_async(lambda: api.count("watch") == 1)
        api.mute = True
        await until_async(lambda: watch.last_contact_age() > 1.0)
        api.mute = False
        await until_async(lambda: watch.last_contact_age() < 1.0)
        assert api.count("watch") == 1
