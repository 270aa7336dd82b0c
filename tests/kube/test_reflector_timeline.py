"""What a reflector requests, second by second, and what its store has then."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from pytorchjob_operator.errors import Expired, RequestRefused, Unavailable
from pytorchjob_operator.kube.backoff import Backoff
from pytorchjob_operator.kube.client import ApiClient, Page, Scope
from pytorchjob_operator.kube.reflector import Reflector, ReflectorCounters, ReflectorSettings
from pytorchjob_operator.kube.resource import PODS
from pytorchjob_operator.kube.store import Store
from tests.fakes.timeless import play
from tests.fakes.values import Item

SCOPE = Scope(PODS, "ns")
SETTINGS = ReflectorSettings(lasting=(20.0, 20.0), backoff=Backoff(first=1.0, cap=8.0, spread=lambda: 1.0))
DOWN, GONE, FORBIDDEN = (
    Unavailable(500, "Internal", "x"),
    Expired(410, "Expired", "x"),
    RequestRefused(403, "Forbidden", "x"),
)
Object = dict[str, Any]
Fault = Callable[[float, str], Exception | None]


def pod(name: str, version: int) -> Object:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "namespace": "ns", "resourceVersion": str(version)}}


def event(kind: str, name: str, version: int) -> Object:
    return {"type": kind, "object": pod(name, version)}


def bookmark(version: object) -> Object:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}


@dataclass
class Server:
    """Pods by name and version, and events by second; `fault` may fail a list or a watch."""

    pods: dict[str, int]
    events: Mapping[float, Object | Exception | None] = field(default_factory=dict)
    """What a watch sends at this second; None ends it."""
    version: int = 10
    fault: Fault = lambda _now, _verb: None
    bookmarks: bool = True
    """Whether a watch sends one before its end."""
    requests: list[str] = field(default_factory=list)

    async def list(self, scope: Scope, limit: int = 500) -> AsyncIterator[Page]:
        assert scope == SCOPE
        self._arrive(f"list {limit}", "list")
        names, version = sorted(self.pods), str(self.version)
        for start in range(0, max(1, len(names)), limit):
            yield Page([pod(name, self.pods[name]) for name in names[start : start + limit]], version)

    @asynccontextmanager
    async def watch(
        self, scope: Scope, resource_version: str, lasting: float, silence: float
    ) -> AsyncIterator[AsyncIterator[Object]]:
        assert (scope, silence) == (SCOPE, 28.0)
        self._arrive(f"watch {resource_version}", "watch")
        yield self._stream(resource_version, lasting)

    async def _stream(self, version: str, lasting: float) -> AsyncIterator[Object]:
        clock = asyncio.get_running_loop().time
        begin = clock()
        for at, found in sorted(self.events.items()):
            if at >= begin and at < begin + lasting:
                await asyncio.sleep(at - clock())
                if isinstance(found, Exception):
                    raise found
                if found is None:
                    return
                yield found
                version = (found["object"]["metadata"] if "object" in found else {}).get("resourceVersion") or version
        await asyncio.sleep(begin + lasting - clock())
        if self.bookmarks:
            yield bookmark(version)

    def _arrive(self, words: str, verb: str) -> None:
        now = asyncio.get_running_loop().time()
        self.requests.append(f"{now:g} {words}")
        found = self.fault(now, verb)
        if found is not None:
            raise found


@dataclass(frozen=True)
class Seen:
    """What a reflector did."""

    requests: str
    names: str
    counters: ReflectorCounters
    versions: str
    reflector: Reflector[Item]
    age: float


def seen(server: Server, seconds: float, settings: ReflectorSettings = SETTINGS) -> Seen:
    """Run a reflector for so long."""
    server.requests.clear()  # a parameter serves each run of its test
    return play(_story(server, seconds, settings))


async def _story(server: Server, seconds: float, settings: ReflectorSettings) -> Seen:
    clock = asyncio.get_running_loop().time
    store: Store[Item] = Store(clock)
    store.put(Item("elsewhere", "uid-elsewhere", 5, "elsewhere", "another-namespace"))
    reflector = Reflector(cast(ApiClient, server), SCOPE, store, _decode, settings)
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(seconds)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    names = " ".join(sorted(item.name for item in store.by_owner("job")))
    versions = " ".join(f"{item.name}@{item.resource_version}" for item in store.by_owner("job"))
    age = reflector.last_contact_age(clock())
    assert store.by_owner("elsewhere"), "another namespace is not touched"
    return Seen(", ".join(server.requests), names, reflector.counters, versions, reflector, age)


def _decode(obj: Object) -> Item | None:
    return None if obj["metadata"]["name"].startswith("foreign") else Item.decode(obj)


def between(begin: float, end: float, error: Exception, *verbs: str) -> Fault:
    """A server that fails between these seconds, only with these requests if any are given."""
    return lambda now, verb: error if begin <= now < end and (not verbs or verb in verbs) else None


@pytest.mark.parametrize(
    ("server", "requests"),
    [
        pytest.param(Server({}), "0 list 500, 0 watch 10, 21 watch 10, 42 watch 10", id="a watch ends: the next one"),
        pytest.param(
            Server({}, bookmarks=False),
            "0 list 500, 0 watch 10, 21 list 1, 21 watch 10, 42 list 1, 42 watch 10",
            id="it has sent nothing: the version is checked",
        ),
        pytest.param(
            Server({}, {3.0: event("ADDED", "a", 12), 4.0: bookmark("15")}),
            "0 list 500, 0 watch 10, 21 watch 15, 42 watch 15",
            id="from the last version that it was sent",
        ),
        pytest.param(
            Server({}, {3.0: bookmark("many")}),
            "0 list 500, 0 watch 10, 21 watch many, 42 watch many",
            id="also from one that is no number",
        ),
        pytest.param(
            Server({}, {3.0: bookmark(None), 4.0: {"type": "BOOKMARK"}}, bookmarks=False),
            "0 list 500, 0 watch 10, 21 watch 10, 42 list 1, 42 watch 10",
            id="a bookmark without a version is none",
        ),
        pytest.param(
            Server({}, {3.0: None, 9.0: bookmark("10"), 10.0: None, 21.0: bookmark("10"), 22.0: None}),
            "0 list 500, 0 watch 10, 4 list 1, 4 watch 10, 11 list 1, 11 watch 10, 23 list 1, 23 watch 10, 44 watch 10",
            id="it ends early: the version is checked",
        ),
        pytest.param(
            Server({}, {3.0: DOWN}, fault=between(3.0, 10.0, DOWN)),
            "0 list 500, 0 watch 10, 4 list 1, 6 list 1, 10 list 1, 10 watch 10, 31 watch 10",
            id="failures are retried with longer pauses",
        ),
        pytest.param(
            Server({}, {8.0: GONE}),
            "0 list 500, 0 watch 10, 9 list 500, 9 watch 10, 30 watch 10",
            id="the history is gone: list again",
        ),
        pytest.param(
            Server({}, {8.0: FORBIDDEN}),
            "0 list 500, 0 watch 10, 9 list 500, 9 watch 10, 30 watch 10",
            id="a refusal: list again",
        ),
        pytest.param(
            Server({}, {8.0: ValueError("a bug")}),
            "0 list 500, 0 watch 10, 9 list 500, 9 watch 10, 30 watch 10",
            id="a bug: list again",
        ),
        pytest.param(
            Server({}, fault=between(0, 20, DOWN)),
            "0 list 500, 1 list 500, 3 list 500, 7 list 500, 15 list 500, 23 list 500, 23 watch 10, 44 watch 10",
            id="a server that is away at first, with pauses up to the bound",
        ),
        pytest.param(
            Server({}, fault=between(0, 30, DOWN, "watch")),
            "0 list 500, 0 watch 10, 1 list 1, 1 watch 10, 3 list 1, 3 watch 10, 7 list 1, 7 watch 10,"
            " 15 list 1, 15 watch 10, 23 list 500, 23 watch 10, 31 list 1, 31 watch 10",
            id="watches that fail: after five of them it lists again",
        ),
    ],
)
def test_which_requests_it_sends(server: Server, requests: str) -> None:
    assert seen(server, 48).requests == requests


@pytest.mark.parametrize(
    ("events", "names"),
    [
        pytest.param({}, "a b", id="what the list has"),
        pytest.param({3.0: event("ADDED", "c", 11)}, "a b c", id="what is added"),
        pytest.param({3.0: event("MODIFIED", "c", 11)}, "a b c", id="what is changed"),
        pytest.param({3.0: event("DELETED", "a", 11)}, "b", id="not what is deleted"),
        pytest.param({3.0: event("ADDED", "foreign", 11)}, "a b", id="not what is ignored"),
        pytest.param({3.0: bookmark("11")}, "a b", id="no bookmark"),
    ],
)
def test_what_the_store_has(events: Mapping[float, Object], names: str) -> None:
    assert seen(Server({"a": 1, "b": 2, "foreign": 3}, events), 10).names == names


def test_pages_are_read_until_the_last() -> None:
    settings = ReflectorSettings(page=2)
    found = seen(Server(dict.fromkeys("abcde", 1)), 5, settings)
    assert (found.requests.split(",")[0], found.names) == ("0 list 2", "a b c d e")


def becomes(server: Server, at: float, version: Any, **pods: int) -> Server:
    """From this second on, the server has this version and these pods."""

    def change(now: float, _verb: str) -> None:
        if now >= at:
            server.version, server.pods = version, pods

    server.fault = change
    return server


def test_what_is_missing_in_a_later_list_is_removed() -> None:
    server = Server({"a": 1, "b": 2}, {3.0: event("ADDED", "c", 11), 8.0: GONE})
    found = seen(becomes(server, 8, 12, b=2), 12)
    assert (found.names, found.counters.swept) == ("b", 2)


def test_it_counts_what_it_does() -> None:
    found = seen(Server({"a": 1}, {3.0: DOWN, 10.0: GONE}), 15)
    assert found.counters == ReflectorCounters(lists=2, watches=3, failures=2, swept=0)


@pytest.mark.parametrize(
    ("version", "names"),
    [
        pytest.param(12, "restored", id="a lower version: the server was restored, and all else is dropped"),
        pytest.param(13, "a", id="the same version: it was not"),
        pytest.param(0, "a", id="no version: it is unknown"),
        pytest.param(1, "restored", id="the lowest version: it was restored"),
        pytest.param("many", "a", id="a text: it is unknown"),
    ],
)
@pytest.mark.parametrize("bookmarked", [True, False], ids=["it sent the version", "a pod has the version"])
def test_a_version_that_goes_back(version: Any, names: str, bookmarked: bool) -> None:
    newest = bookmark("13") if bookmarked else event("MODIFIED", "a", 13)
    server = Server({"a": 1}, {1.0: newest, 3.0: DOWN})
    assert seen(becomes(server, 3, version, restored=1), 10).names == names


def test_after_a_restore_later_versions_count_from_there() -> None:
    server = becomes(Server({"a": 1}, {1.0: bookmark("50"), 3.0: DOWN, 9.0: DOWN}), 3, 12, restored=1)
    assert seen(server, 14).requests.endswith("4 list 1, 4 list 500, 4 watch 12, 10 list 1, 10 watch 12")


@pytest.mark.parametrize(
    ("server", "age"),
    [
        pytest.param(Server({}), 8.0, id="since the watch was opened"),
        pytest.param(Server({}, {5.0: bookmark("11")}), 3.0, id="since the last event"),
        pytest.param(Server({}, fault=between(0, 60, DOWN)), float("inf"), id="it was never heard"),
        pytest.param(Server({}, fault=between(1, 60, DOWN), events={1.0: DOWN}), 8.0, id="failures do not count"),
        pytest.param(Server({}, fault=between(0, 60, DOWN, "watch")), 8.0, id="since the list"),
    ],
)
def test_the_age_of_the_last_contact(server: Server, age: float) -> None:
    assert seen(server, 8).age == age


def test_an_age_is_never_negative() -> None:
    assert seen(Server({}), 8).reflector.last_contact_age(-5.0) == 0.0


def test_each_watch_draws_its_own_length_between_the_bounds() -> None:
    lengths = []

    class Noting(Server):
        @asynccontextmanager
        async def watch(
            self, scope: Scope, resource_version: str, lasting: float, silence: float
        ) -> AsyncIterator[AsyncIterator[Object]]:
            lengths.append(lasting)
            async with super().watch(scope, resource_version, lasting, silence) as events:
                yield events

    seen(Noting({}), 400, ReflectorSettings(backoff=SETTINGS.backoff))
    assert len(set(lengths)) == len(lengths) > 15
    assert all(18.0 <= length <= 24.0 for length in lengths)


def test_a_watch_of_any_of_these_lengths_has_ended_in_time() -> None:
    assert seen(Server({}), 400, ReflectorSettings(backoff=SETTINGS.backoff)).requests.count("list") == 1


def test_watches_that_end_at_once_are_opened_more_and_more_slowly() -> None:
    found = seen(Server({}, bookmarks=False), 24, replace(SETTINGS, lasting=(0.0, 0.0)))
    later = [f"{second} list 1, {second} watch 10" for second in (1, 3, 7, 15, 23)]
    assert found.requests == ", ".join(["0 list 500, 0 watch 10", *later])


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(DOWN, ["pods: the watch failed: Internal (500): x"], id="a failure"),
        pytest.param(GONE, [], id="a compaction is expected"),
        pytest.param(ValueError("a bug"), ["pods: the watch failed unexpectedly"], id="a bug"),
    ],
)
def test_what_it_logs(caplog: pytest.LogCaptureFixture, error: Exception, words: list[str]) -> None:
    seen(Server({}, {3.0: error}), 5)
    assert [record.getMessage() for record in caplog.records] == words


def test_all_removals_are_counted() -> None:
    server = Server({"a": 1, "b": 1, "c": 1}, {3.0: GONE, 9.0: GONE})

    def change(now: float, _verb: str) -> None:
        server.pods = {"a": 1, "b": 1, "c": 1} if now < 3 else {"b": 1, "c": 1} if now < 9 else {"c": 1}

    server.fault = change
    assert seen(server, 14).counters.swept == 2


def test_a_watch_whose_versions_fall_is_one_of_a_restored_server(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", Reflector.__module__)
    server = becomes(Server({"a": 1}, {3.0: bookmark("15"), 4.0: bookmark("12")}), 4, 12, restored=1)
    found = seen(server, 8)
    assert (found.requests, found.names) == ("0 list 500, 0 watch 10, 5 list 500, 5 watch 12", "restored")
    words = [
        "pods: the watch failed: Expired (410): the resourceVersion went back from 15 to 12",
        "pods: the server's resourceVersion went back; the cache is refilled",
    ]
    assert [record.getMessage() for record in caplog.records if record.name == Reflector.__module__] == words


def test_a_list_replaces_a_newer_state_that_it_would_have_to_contain() -> None:
    server = Server({"a": 5}, {3.0: event("MODIFIED", "a", 13), 8.0: GONE})
    assert seen(becomes(server, 8, 12, a=5), 7).versions == "a@13"
    assert seen(becomes(server, 8, 14, a=5), 12).versions == "a@5"
