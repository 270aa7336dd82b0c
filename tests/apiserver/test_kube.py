"""The I/O layer against a real API server: what the fake one of tests/kube claims is true."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pytorchjob_operator.errors import ApiError, Conflict, NotFound, RequestRefused
from pytorchjob_operator.kube import config
from pytorchjob_operator.kube.client import ApiClient, Object, Scope
from pytorchjob_operator.kube.fence import Fence
from pytorchjob_operator.kube.lease import Elector, LeaseLostError, LeaseName, LeaseSettings
from pytorchjob_operator.kube.recorder import Involved, Recorder, Reporter
from pytorchjob_operator.kube.reflector import Reflector, ReflectorSettings
from pytorchjob_operator.kube.resource import LEASES, PODS
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.names import EventType
from tests.apiserver.cluster import ControlPlane
from tests.fakes.values import Item
from tests.waiting import connections_close, until_async

pytestmark = pytest.mark.apiserver
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def client(bare: ControlPlane) -> AsyncIterator[ApiClient]:
    connection = config.load({"KUBECONFIG": str(bare.kubeconfig)})
    async with ApiClient(connection, "pytorchjob-operator/test") as opened:
        yield opened
    await connections_close()


def pod(name: str, **labels: str) -> Object:
    spec = {"containers": [{"name": "c", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


@asynccontextmanager
async def running(work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _delete_another(client: ApiClient) -> Any:
    return await client.delete(PODS, "default", "refusals", "uid-of-another")


async def _patch_old(client: ApiClient) -> Any:
    return await client.patch_status(PODS, "default", "refusals", {"metadata": {"resourceVersion": "1"}})


@pytest.mark.parametrize(
    ("act", "kind", "reason"),
    [
        pytest.param(lambda c: c.create(PODS, "default", pod("refusals")), Conflict, "AlreadyExists", id="name taken"),
        pytest.param(_delete_another, Conflict, "Conflict", id="another uid"),
        pytest.param(_patch_old, Conflict, "Conflict", id="an old version"),
        pytest.param(lambda c: c.create(PODS, "default", pod("BAD")), RequestRefused, "Invalid", id="invalid"),
        pytest.param(lambda c: c.create(PODS, "no-such", pod("a")), NotFound, "NotFound", id="no namespace"),
        pytest.param(lambda c: c.get(PODS, "default", "no-such"), NotFound, "NotFound", id="no pod"),
    ],
)
async def test_refusals(
    client: ApiClient, act: Callable[[ApiClient], Awaitable[Any]], kind: type[ApiError], reason: str
) -> None:
    with suppress(Conflict):
        await client.create(PODS, "default", pod("refusals"))
    with pytest.raises(kind) as caught:
        await act(client)
    assert caught.value.reason == reason


async def test_a_reflector_follows_a_pod_from_birth_to_death(client: ApiClient) -> None:
    store: Store[Item] = Store(asyncio.get_running_loop().time)
    reflector = Reflector(client, Scope(PODS, None, "job=seen"), store, Item.decode, ReflectorSettings(page=2))
    for index in range(3):
        await client.create(PODS, "default", pod(f"early-{index}", job="seen"))
    async with running(reflector.run()):
        await reflector.synced.wait()
        assert len(store) == 3
        made = await client.create(PODS, "default", pod("late", job="seen"))
        await client.create(PODS, "default", pod("unseen", job="other"))
        await until_async(lambda: len(store) == 4)
        await client.delete(PODS, "default", "late", made["metadata"]["uid"], grace_seconds=0)
        await until_async(lambda: len(store) == 3)
    assert (reflector.counters.lists, reflector.counters.failures) == (1, 0)


async def test_events_are_accepted_and_counted(bare: ControlPlane, client: ApiClient) -> None:
    recorder = Recorder(client, Reporter("reporter", "one"), lambda: 0.0, lambda: NOW)
    about = Involved("v1", "Pod", "default", "spoken-of", "uid-1")
    async with running(recorder.run()):
        for _ in range(3):
            recorder.event(about, EventType.WARNING, "Why", "because")
        await recorder.drained()
    found = bare.get("events", "--field-selector=involvedObject.name=spoken-of")["items"]
    assert [(event["count"], event["reportingComponent"], event["message"]) for event in found] == [
        (3, "reporter", "because")
    ]


async def test_a_lease_is_made_and_released(client: ApiClient) -> None:
    clock = asyncio.get_running_loop().time
    elector = Elector(client, LeaseName("default", "leader", "one"), clock, lambda: NOW)
    async with running(elector.run()):
        await elector.acquired.wait()
        held = await client.get(LEASES, "default", "leader")
    left = await client.get(LEASES, "default", "leader")
    assert (held["spec"]["holderIdentity"], left["spec"].get("holderIdentity")) == ("one", "")


QUICK = LeaseSettings(duration=2.0, deadline=1.5, period=0.1, request=0.5)
RELEASED = {"holderIdentity": "", "leaseDurationSeconds": 1}


def _elector(client: ApiClient, lease: str, identity: str) -> Elector:
    clock = asyncio.get_running_loop().time
    name = LeaseName("default", lease, identity)
    return Elector(client, name, clock, lambda: NOW + timedelta(seconds=clock()), QUICK)


async def test_a_deleted_lease_never_gives_two_leaders_and_terms_go_on(bare: ControlPlane, client: ApiClient) -> None:
    """The API server accepts a PUT that creates a Lease; a renewal must not be one."""
    await client.create(LEASES, "default", {"metadata": {"name": "deleted"}, "spec": RELEASED})
    first, second = _elector(client, "deleted", "one"), _elector(client, "deleted", "two")
    leading = asyncio.create_task(first.run())
    await first.acquired.wait()
    async with running(second.run()):
        await asyncio.sleep(0.5)
        bare.kubectl("delete", "lease", "deleted")
        both = False
        while not second.acquired.is_set():
            both |= first.valid() and second.valid()
            await asyncio.sleep(0.001)
        assert (both, first.valid(), second.term > first.term) == (False, False, True)
        with pytest.raises(LeaseLostError, match=r"it was deleted|the leader is now two"):
            await leading


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": "x", "leaseTransitions": 2**31 - 1}], ids=repr)
async def test_a_lease_that_was_edited_costs_the_lead_but_no_later_one(client: ApiClient, spec: Any) -> None:
    lease = f"edited-{len(str(spec))}"
    await client.create(LEASES, "default", {"metadata": {"name": lease}, "spec": RELEASED})
    first, second = _elector(client, lease, "one"), _elector(client, lease, "two")
    leading = asyncio.create_task(first.run())
    await first.acquired.wait()
    await until_async(lambda: _edited(client, lease, spec))
    with pytest.raises(LeaseLostError):
        await leading
    async with running(second.run()):
        await second.acquired.wait()
        assert second.term > first.term


async def _edited(client: ApiClient, lease: str, spec: Any) -> bool:
    """Replace the spec, unless a renewal comes between."""
    live = await client.get(LEASES, "default", lease)
    with suppress(Conflict):
        await client.update(LEASES, "default", {**live, "spec": spec})
        return True
    return False


async def test_a_write_may_carry_the_rest_of_the_term(bare: ControlPlane) -> None:
    """Each kind of write accepts the deadline; a create whose deadline is over changes nothing."""
    fence = Fence(asyncio.get_running_loop().time)
    fence.extend(asyncio.get_running_loop().time() + 8.0)
    connection = config.load({"KUBECONFIG": str(bare.kubeconfig)})
    async with ApiClient(connection, "pytorchjob-operator/test", fence) as writer:
        made = await writer.create(PODS, "default", pod("fenced"))
        await writer.patch(PODS, "default", "fenced", {"metadata": {"labels": {"a": "b"}}})
        await writer.patch_status(PODS, "default", "fenced", {"status": {"phase": "Running"}})
        live = await writer.get(PODS, "default", "fenced")
        await writer.update(PODS, "default", {**live, "kind": "Pod", "apiVersion": "v1"})
        await writer.delete(PODS, "default", "fenced", made["metadata"]["uid"], grace_seconds=0)
        fence.fall()
        with pytest.raises(ApiError, match="not the leader"):
            await writer.create(PODS, "default", pod("late"))
    assert "late" not in bare.kubectl("get", "pods").stdout


async def test_a_quiet_watch_ends_in_time_with_a_bookmark(client: ApiClient) -> None:
    """So a watch that is silent for longer is dead; no list is needed to go on."""
    store: Store[Item] = Store(asyncio.get_running_loop().time)
    reflector = Reflector(client, Scope(PODS, None, "job=none"), store, Item.decode, ReflectorSettings())
    async with running(reflector.run()):
        await until_async(lambda: reflector.counters.watches >= 2)
        age = reflector.last_contact_age(asyncio.get_running_loop().time())
    assert (reflector.counters.lists, reflector.counters.failures) == (1, 0)
    assert age < ReflectorSettings().silence
