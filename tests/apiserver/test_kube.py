"""The I/O layer against a real API server: what the fake one of tests/kube claims is true."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from pytorchjob_operator.errors import ApiError, Conflict, NotFound, Refused
from pytorchjob_operator.kube import config
from pytorchjob_operator.kube.client import ApiClient, Object, Scope
from pytorchjob_operator.kube.lease import Elector, LeaseName
from pytorchjob_operator.kube.recorder import Involved, Recorder, Reporter
from pytorchjob_operator.kube.reflector import Reflector, ReflectorSettings
from pytorchjob_operator.kube.resource import LEASES, PODS
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.names import EventType
from tests.apiserver.cluster import ControlPlane
from tests.fakes.values import Item
from tests.waiting import until_async

pytestmark = pytest.mark.apiserver
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def client(bare: ControlPlane) -> AsyncIterator[ApiClient]:
    connection = config.load({"KUBECONFIG": str(bare.kubeconfig)})
    async with ApiClient(connection, "pytorchjob-operator/test") as one:
        yield one


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
        pytest.param(lambda c: c.create(PODS, "default", pod("BAD")), Refused, "Invalid", id="invalid"),
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
    assert [(one["count"], one["reportingComponent"], one["message"]) for one in found] == [(3, "reporter", "because")]


async def test_a_lease_is_made_and_released(client: ApiClient) -> None:
    clock = asyncio.get_running_loop().time
    elector = Elector(client, LeaseName("default", "leader", "one"), clock, lambda: NOW)
    async with running(elector.run()):
        await elector.acquired.wait()
        held = await client.get(LEASES, "default", "leader")
    left = await client.get(LEASES, "default", "leader")
    assert (held["spec"]["holderIdentity"], left["spec"].get("holderIdentity")) == ("one", "")
