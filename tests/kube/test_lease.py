"""The elector: never two leaders at once, always one in the end, whatever the API server does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from pytorchjob_operator.kube.lease import Elector, LeaseLostError, LeaseName, LeaseSettings
from tests.fakes.apiserver import FakeApi, failure
from tests.waiting import SECONDS, until_async

LEASES = "apis/coordination.k8s.io/v1/leases"
QUICK = LeaseSettings(duration=2.0, deadline=1.5, period=0.05, request=0.5)
"""Where a Lease has to expire. Who stands still for long loses it too, so no such test expects a leader to keep it."""
LASTING = LeaseSettings(duration=600.0, deadline=500.0, period=0.05, request=60.0)
"""Where it has to be kept, however slow the machine is."""
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW = int(NOON.timestamp())
"""The first term of a leader that acquires its Lease at noon."""


class Candidate:
    """An elector with a client of its own, running."""

    def __init__(self, client: ApiClient, name: str, settings: LeaseSettings) -> None:
        clock, renewals = asyncio.get_running_loop().time, count()
        # Each renewal has another time: a candidate that sees none would take the lead from a leader that lives.
        wall = lambda: NOON + timedelta(microseconds=next(renewals))  # noqa: E731
        self.elector = Elector(client, LeaseName("ns", "leader", name), clock, wall, settings)
        self.task = asyncio.create_task(self.elector.run())

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError, LeaseLostError):
            await self.task


Stand = Callable[..., Awaitable[Candidate]]


@asynccontextmanager
async def _candidates(api: FakeApi) -> AsyncIterator[Stand]:
    async with AsyncExitStack() as stack:

        async def stand(name: str, settings: LeaseSettings = QUICK) -> Candidate:
            client = await stack.enter_async_context(ApiClient(ApiEndpoint(api.url), "test/1"))
            candidate = Candidate(client, name, settings)
            stack.push_async_callback(candidate.stop)
            return candidate

        yield stand


@pytest.fixture
async def stand(api: FakeApi) -> AsyncIterator[Stand]:
    async with _candidates(api) as candidates:
        yield candidates


@pytest.fixture
def released(api: FakeApi) -> None:
    """A Lease that its last leader released, long ago: the next one leads at once."""
    api.put(LEASES, _held_by("", transitions=1))


def lease(api: FakeApi) -> dict[str, Any]:
    spec: dict[str, Any] = api.objects[LEASES][("ns", "leader")]["spec"]
    return spec


async def test_the_lease_is_made_if_it_is_missing(api: FakeApi, stand: Stand) -> None:
    first = await stand("one")
    await until_async(first.elector.valid)
    found = lease(api)
    times = [found.pop("acquireTime"), found.pop("renewTime")]
    assert found == {"holderIdentity": "one", "leaseDurationSeconds": 2, "leaseTransitions": NOW}
    assert all(time.startswith("2026-01-01T12:00:00.00") for time in times)


async def test_a_leader_renews_with_one_request(api: FakeApi, stand: Stand, released: None) -> None:
    first = await stand("one", LASTING)
    await until_async(lambda: api.count("update") >= 3)
    assert first.elector.valid()
    assert api.count("get") == 1


async def test_of_two_one_leads(api: FakeApi, stand: Stand, released: None) -> None:
    first, second = await stand("one", LASTING), await stand("two", LASTING)
    await until_async(lambda: first.elector.acquired.is_set() or second.elector.acquired.is_set())
    await until_async(lambda: api.count("update") >= 30)
    assert first.elector.valid() != second.elector.valid()


async def test_a_leader_that_leaves_hands_over_at_once(api: FakeApi, stand: Stand, released: None) -> None:
    first = await stand("one", LASTING)
    await first.elector.acquired.wait()
    await first.stop()
    assert (lease(api)["holderIdentity"], first.elector.valid()) == ("", False)
    second = await stand("two", LASTING)
    await second.elector.acquired.wait()
    assert second.elector.term == first.elector.term + 1


@pytest.mark.parametrize(
    ("before", "term"),
    [
        pytest.param(7, NOW, id="the time, if it is later"),
        pytest.param(NOW + 5, NOW + 6, id="one more, if terms run ahead of this clock"),
        pytest.param(2**31 - 1, NOW, id="a number that no leader wrote is ignored"),
    ],
)
async def test_a_dead_leader_is_succeeded_in_a_later_term(api: FakeApi, stand: Stand, before: int, term: int) -> None:
    api.put(LEASES, _held_by("dead", transitions=before))
    second = await stand("two")
    await second.elector.acquired.wait()
    assert second.elector.term == term


async def _lost(candidate: Candidate) -> None:
    async with asyncio.timeout(SECONDS):
        with pytest.raises(LeaseLostError):
            await candidate.task


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(FakeApi.hang, id="the server hangs"),
        pytest.param(lambda api: setattr(api, "failing", lambda _: failure(500, "Internal")), id="it answers 500"),
        pytest.param(lambda api: setattr(api, "failing", lambda _: failure(403, "Forbidden")), id="it refuses"),
    ],
)
async def test_a_leader_that_cannot_renew_is_fenced_until_it_can(
    api: FakeApi, stand: Stand, released: None, fault: Callable[[FakeApi], None]
) -> None:
    first = await stand("one")
    await first.elector.acquired.wait()
    fault(api)
    await until_async(lambda: not first.elector.valid())
    api.failing = lambda _: None
    api.hang(False)
    await until_async(first.elector.valid)
    assert (first.elector.term, first.task.done()) == (NOW, False)


@pytest.mark.parametrize("holder", ["thief", ""], ids=["a rival leads", "a rival led and left"])
async def test_a_leader_that_was_away_too_long_ends(api: FakeApi, stand: Stand, released: None, holder: str) -> None:
    first = await stand("one")
    await first.elector.acquired.wait()
    api.failing = lambda _: failure(500, "Internal")
    await until_async(lambda: not first.elector.valid())
    api.put(LEASES, _held_by(holder, transitions=2))
    api.failing = lambda _: None
    await _lost(first)
    assert not first.elector.valid()


async def test_the_fence_falls_before_the_successor_begins(api: FakeApi, stand: Stand, released: None) -> None:
    first, both = await stand("one"), False
    await first.elector.acquired.wait()
    api.failing = lambda request: failure(500, "Internal") if _from(request, "one") else None
    second = await stand("two")
    while not second.elector.valid():
        both |= first.elector.valid() and second.elector.valid()
        await asyncio.sleep(0.001)
    assert (both, first.elector.valid()) == (False, False)


def _from(request: Any, name: str) -> bool:
    """Renewals carry their holder; a read does not, but a leader only reads once a renewal failed."""
    return bool(request.body) and request.body["spec"]["holderIdentity"] == name


async def test_a_reset_connection_does_not_cost_the_lead(api: FakeApi, stand: Stand, released: None) -> None:
    first = await stand("one", LASTING)
    await first.elector.acquired.wait()
    for _ in range(5):
        api.cut()
        await asyncio.sleep(0.02)
    before = api.count("update")
    await until_async(lambda: api.count("update") >= before + 3)
    assert first.elector.valid()
    assert first.elector.term == NOW


@pytest.mark.parametrize("created_again", [False, True])
async def test_a_leader_whose_lease_is_deleted_ends_at_once(
    api: FakeApi, stand: Stand, released: None, created_again: bool
) -> None:
    first = await stand("one", LASTING)
    await first.elector.acquired.wait()
    held = lease(api)
    api.remove(LEASES, "leader", "ns")
    if created_again:
        api.put(LEASES, {"metadata": {"name": "leader", "namespace": "ns"}, "spec": held})
    await _lost(first)
    assert not first.elector.valid()


async def test_after_a_deletion_no_two_lead_and_the_next_term_is_later(
    api: FakeApi, stand: Stand, released: None
) -> None:
    first = await stand("one")
    await first.elector.acquired.wait()
    api.failing = lambda request: failure(500, "Internal") if _from(request, "one") else None
    second = await stand("two")
    await until_async(lambda: api.count("get") >= 3)
    api.remove(LEASES, "leader", "ns")
    both = False
    while not second.elector.acquired.is_set():
        both |= first.elector.valid() and second.elector.valid()
        await asyncio.sleep(0.001)
    assert (both, first.elector.valid(), second.elector.term) == (False, False, NOW + 1)


async def test_who_creates_the_lease_leads_only_after_a_lease_duration(api: FakeApi, stand: Stand) -> None:
    """A leader whose Lease was deleted may still write for that long."""
    clock, created = asyncio.get_running_loop().time, list[float]()
    api.failing = lambda request: created.append(clock()) if request.verb == "create" else None
    first = await stand("one")
    await first.elector.acquired.wait()
    (since,) = created
    assert clock() - since >= QUICK.duration


async def test_a_lease_that_only_lost_its_holder_is_not_taken_at_once(api: FakeApi, stand: Stand) -> None:
    """`kubectl edit` can clear the holder while it leads."""
    api.put(LEASES, _held_by("", transitions=2, duration=15))
    first = await stand("one")
    await until_async(lambda: api.count("get") >= 5)
    assert not first.elector.acquired.is_set()


MALFORMED: list[Any] = [
    None,
    [],
    "x",
    {"holderIdentity": 7},
    {"holderIdentity": "dead", "leaseTransitions": "many", "leaseDurationSeconds": "long"},
    {"holderIdentity": "dead", "leaseTransitions": {"a": 1}, "leaseDurationSeconds": []},
    {"holderIdentity": "dead", "leaseTransitions": 1e300, "leaseDurationSeconds": 1e300},
    {"holderIdentity": "dead", "leaseTransitions": -1, "leaseDurationSeconds": 2**31 - 1, "renewTime": {}},
]


@pytest.mark.parametrize("spec", MALFORMED, ids=repr)
async def test_whatever_a_lease_contains_it_is_taken_in_a_later_term_or_waited_for(
    api: FakeApi, stand: Stand, spec: Any
) -> None:
    api.put(LEASES, {"metadata": {"name": "leader", "namespace": "ns"}, "spec": spec})
    first = await stand("one")
    await until_async(lambda: api.count("get") >= 5)
    assert not first.task.done()
    if not isinstance(spec, dict) or spec.get("leaseDurationSeconds") != 2**31 - 1:
        await first.elector.acquired.wait()
        assert first.elector.term == NOW


async def test_a_lease_that_somebody_took_is_lost_at_once(api: FakeApi, stand: Stand, released: None) -> None:
    first = await stand("one", LASTING)
    await first.elector.acquired.wait()
    api.put(LEASES, _held_by("thief", transitions=2))
    await _lost(first)
    assert lease(api)["holderIdentity"] == "thief"


async def test_the_term_counts_from_before_the_request() -> None:
    """A reply that took longer than the term proves nothing any more."""
    now, made = [0.0], asyncio.Event()

    class Slow:
        async def get(self, *where: object) -> dict[str, Any]:
            now[0] = 100.0
            made.set()
            return {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}

        async def update(self, *where: object) -> dict[str, Any]:
            return dict(where[-1])  # type: ignore[call-overload, no-any-return]

    elector = Elector(Slow(), LeaseName("ns", "leader", "one"), lambda: now[0], lambda: NOON)  # type: ignore[arg-type]
    task = asyncio.create_task(elector.run())
    await made.wait()
    await until_async(elector.acquired.is_set)
    assert not elector.valid()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _held_by(holder: str, transitions: int, duration: int = 1) -> dict[str, Any]:
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration,
        "leaseTransitions": transitions,
        "renewTime": "2026-01-01T11:59:59.000000Z",
    }
    return {"metadata": {"name": "leader", "namespace": "ns"}, "spec": spec}
