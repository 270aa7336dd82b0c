"""The client, over real HTTP."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web

from pytorchjob_operator.errors import ApiError, Conflict, Expired, NotFound, RequestRefused, Unavailable
from pytorchjob_operator.kube.client import ApiClient, Scope
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from pytorchjob_operator.kube.fence import Fence
from pytorchjob_operator.kube.resource import LEASES, PODS, Resource
from tests.fakes.apiserver import FakeApi, Request, failure
from tests.waiting import until_async

JOBS = Resource("kubeflow.org", "v1", "pytorchjobs")
CLUSTER_WIDE = Resource("", "v1", "nodes", namespaced=False)


def pod(name: str = "a", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(PODS.path("ns", "a"), "/api/v1/namespaces/ns/pods/a", id="core group"),
        pytest.param(PODS.path(None), "/api/v1/pods", id="all namespaces"),
        pytest.param(
            JOBS.path("ns", "a", "status"),
            "/apis/kubeflow.org/v1/namespaces/ns/pytorchjobs/a/status",
            id="a subresource in a named group",
        ),
        pytest.param(CLUSTER_WIDE.path("ns", "n"), "/api/v1/nodes/n", id="no namespace for a cluster's object"),
        pytest.param(PODS.path("ns", "../x"), "/api/v1/namespaces/ns/pods/..%2Fx", id="a name cannot leave its place"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


async def test_an_object_lives_from_create_to_delete(api: FakeApi, client: ApiClient) -> None:
    made = await client.create(PODS, "ns", pod())
    await client.patch_status(PODS, "ns", "a", {"status": {"phase": "Running"}})
    seen = await client.get(PODS, "ns", "a")
    await client.delete(PODS, "ns", "a", made["metadata"]["uid"], grace_seconds=0)
    assert seen["status"] == {"phase": "Running"}
    assert api.requests[-1].body["gracePeriodSeconds"] == 0
    with pytest.raises(NotFound):
        await client.get(PODS, "ns", "a")


async def test_every_request_says_who_asks(api: FakeApi, client: ApiClient) -> None:
    await client.create(PODS, "ns", pod())
    assert api.requests[0].headers["User-Agent"] == "test/1"


async def test_a_delete_spares_the_successor_of_the_same_name(api: FakeApi, client: ApiClient) -> None:
    await client.create(PODS, "ns", pod())
    with pytest.raises(Conflict):
        await client.delete(PODS, "ns", "a", "uid-of-another")


async def test_an_update_of_an_old_state_conflicts(api: FakeApi, client: ApiClient) -> None:
    old = await client.create(LEASES, "ns", pod())
    await client.update(LEASES, "ns", old)
    with pytest.raises(Conflict) as caught:
        await client.update(LEASES, "ns", old)
    assert not caught.value.already_exists


async def test_a_taken_name(api: FakeApi, client: ApiClient) -> None:
    await client.create(PODS, "ns", pod())
    with pytest.raises(Conflict) as caught:
        await client.create(PODS, "ns", pod())
    assert caught.value.already_exists


async def test_a_list_comes_in_pages_of_one_moment(api: FakeApi, client: ApiClient) -> None:
    for index in range(5):
        api.put("api/v1/pods", pod(f"p{index}", labels={"app": "x"}))
    api.put("api/v1/pods", pod("other"))
    pages = [page async for page in client.list(Scope(PODS, None, "app=x"), limit=2)]
    assert [len(page.items) for page in pages] == [2, 2, 1]
    assert {page.resource_version for page in pages} == {str(api.version)}
    assert all(request.query["labelSelector"] == "app=x" for request in api.requests)


async def test_a_watch_brings_events_and_bookmarks(api: FakeApi, client: ApiClient) -> None:
    kinds = set()
    async with client.watch(Scope(PODS), str(api.version), lasting=60) as events:
        api.put("api/v1/pods", pod())
        async for event in events:
            kinds.add(event["type"])
            if len(kinds) == 2:
                break
    assert kinds == {"ADDED", "BOOKMARK"}


async def test_an_event_may_be_larger_than_a_read(api: FakeApi, client: ApiClient) -> None:
    async with client.watch(Scope(PODS), str(api.version), lasting=60) as events:
        api.put("api/v1/pods", pod(annotations={"big": "x" * 600_000}))
        event = await anext(aiter(events))
    assert len(event["object"]["metadata"]["annotations"]["big"]) == 600_000


async def test_an_error_in_the_stream_is_an_error(api: FakeApi, client: ApiClient) -> None:
    api.compact()
    api.expire_in_stream = True
    with pytest.raises(ApiError) as caught:
        async with client.watch(Scope(PODS), "1", lasting=60) as events:
            await anext(aiter(events))
    assert isinstance(caught.value, Expired)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(lambda: failure(403, "Forbidden", "exceeded quota"), RequestRefused, id="refused"),
        pytest.param(lambda: failure(503, "ServiceUnavailable"), Unavailable, id="unavailable"),
        pytest.param(lambda: web.Response(text="<html>"), Unavailable, id="a good status with a bad body"),
        pytest.param(lambda: web.Response(text="[]"), Unavailable, id="JSON, but no object"),
        pytest.param(lambda: web.Response(status=500, text="oops"), Unavailable, id="an error without a Status"),
        pytest.param(
            lambda: web.Response(status=302, headers={"Location": "/elsewhere"}),
            RequestRefused,
            id="never follow a redirect",
        ),
    ],
)
async def test_an_answer_that_is_no_object(api: FakeApi, client: ApiClient, answer: Any, kind: type[ApiError]) -> None:
    api.failing = lambda request: answer()
    with pytest.raises(kind):
        await client.create(PODS, "ns", pod())
    assert len(api.requests) == 1


async def test_a_server_that_hangs_is_given_up(api: FakeApi) -> None:
    api.hang()
    async with ApiClient(ApiEndpoint(api.url), "test/1", request_timeout=0.1) as client:
        with pytest.raises(Unavailable) as caught:
            await client.get(PODS, "ns", "a")
    assert (caught.value.status, caught.value.reason) == (0, "Timeout")


async def test_a_server_that_is_not_there(client: ApiClient) -> None:
    async with ApiClient(ApiEndpoint("http://127.0.0.1:1"), "test/1") as lonely:
        with pytest.raises(Unavailable):
            await lonely.get(PODS, "ns", "a")


async def test_a_cut_connection(api: FakeApi, client: ApiClient) -> None:
    async def watch() -> None:
        async with client.watch(Scope(PODS), str(api.version), lasting=60) as events:
            async for _ in events:
                api.cut()

    with pytest.raises(Unavailable):
        await watch()


async def test_a_silent_watch_is_given_up(api: FakeApi, client: ApiClient) -> None:
    api.mute = True
    with pytest.raises(Unavailable):
        async with client.watch(Scope(PODS), str(api.version), lasting=60, silence=0.1) as events:
            await anext(aiter(events))


class _Rotating:
    """A token that is renewed only when it was refused."""

    def __init__(self) -> None:
        self.token = "old"

    async def __call__(self, *, fresh: bool = False) -> str:
        if fresh:
            self.token = "new"
        return self.token


def _only_new(request: Request) -> web.Response | None:
    return None if request.headers["Authorization"] == "Bearer new" else failure(401, "Unauthorized")


async def test_a_refused_token_is_read_again(api: FakeApi) -> None:
    api.failing = _only_new
    async with ApiClient(ApiEndpoint(api.url, token=_Rotating()), "test/1") as client:
        await client.create(PODS, "ns", pod())
    assert len(api.requests) == 2


async def test_a_token_that_stays_refused_is_asked_for_once(api: FakeApi) -> None:
    api.failing = lambda request: failure(401, "Unauthorized")
    async with ApiClient(ApiEndpoint(api.url, token=_Rotating()), "test/1") as client:
        with pytest.raises(Unavailable):
            await client.get(PODS, "ns", "a")
    assert len(api.requests) == 2


class Term(Fence):
    """A write fence whose time the test sets."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop().time)
        self.seconds = 8.0

    def remaining(self) -> float:
        return self.seconds


async def test_a_write_that_waited_for_its_connection_beyond_the_term_does_not_leave(api: FakeApi) -> None:
    """The check before the queue would have passed."""
    term = Term()

    class SlowToken:
        async def __call__(self, *, fresh: bool = False) -> str | None:
            term.seconds = 0.0
            return "token"

    async with ApiClient(ApiEndpoint(api.url, token=SlowToken()), "test/1", term) as client:
        with pytest.raises(Unavailable, match="is not the leader"):
            await client.create(PODS, "ns", pod())
        with pytest.raises(NotFound):
            await client.get(PODS, "ns", "a")
    assert api.count("create") == 0


async def test_a_write_tells_the_server_when_the_term_ends(api: FakeApi) -> None:
    async with ApiClient(ApiEndpoint(api.url), "test/1", Term()) as client:
        await client.create(PODS, "ns", pod())
        await client.get(PODS, "ns", "a")
    assert [request.query for request in api.requests] == [{"timeout": "8000ms"}, {}]


async def test_no_write_outlives_the_term(api: FakeApi) -> None:
    """Writes that the server holds fail at once when the lead is lost, and none leaves later."""
    fence = Fence(asyncio.get_running_loop().time)
    fence.extend(asyncio.get_running_loop().time() + 60.0)
    async with ApiClient(ApiEndpoint(api.url), "test/1", fence) as client:
        api.hang()
        writes = [asyncio.create_task(client.create(PODS, "ns", pod(f"p{index}"))) for index in range(5)]
        await until_async(lambda: api.count("create") == 5)
        fence.fall()
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        later = await asyncio.gather(client.create(PODS, "ns", pod("late")), return_exceptions=True)
        api.hang(False)
    reasons = [outcome.reason for outcome in outcomes + later if isinstance(outcome, Unavailable)]
    assert reasons == ["ConnectionFailed"] * 5 + ["NotLeader"], "a write that ran into its timeout was not cut"
    assert api.count("create") == 5


async def test_a_fence_that_is_not_extended_falls_by_itself(api: FakeApi) -> None:
    fence = Fence(asyncio.get_running_loop().time)
    fence.extend(asyncio.get_running_loop().time() + 0.2)
    async with ApiClient(ApiEndpoint(api.url), "test/1", fence) as client:
        api.hang()
        with pytest.raises(Unavailable) as cut:
            await client.create(PODS, "ns", pod())
        assert cut.value.reason == "ConnectionFailed", "not its timeout"
        api.hang(False)
        fence.extend(asyncio.get_running_loop().time() + 60.0)
        await client.create(PODS, "ns", pod("b"))


async def test_each_request_is_reported(api: FakeApi) -> None:
    seen: list[tuple[str, str, int]] = []
    connection = ApiEndpoint(api.url)
    async with ApiClient(connection, "t/1", on_request=lambda *request: seen.append(request[:3])) as client:
        await client.create(PODS, "ns", pod())
        async with aclosing(client.list(Scope(PODS))) as pages:  # type: ignore[type-var]
            await anext(pages)
        with pytest.raises(NotFound):
            await client.get(JOBS, "ns", "none")
    assert seen == [("create", "pods", 201), ("list", "pods", 200), ("get", "pytorchjobs", 404)]
