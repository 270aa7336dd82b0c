"""When a candidate may take the lead from another process: by its own clock, whatever the Lease's times say."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.lease import Elector, LeaseName, LeaseSettings
from tests.fakes.apiserver import FakeApi, Request
from tests.waiting import until_async

LEASES = "apis/coordination.k8s.io/v1/leases"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SETTINGS = LeaseSettings(duration=15.0, deadline=10.0, period=0.001, request=60.0)
LIMIT = 40
"""Seconds of the candidate's clock for which a test watches it."""

Spec = dict[str, Any]


def held(renewed: float = 0, holder: str = "other", transitions: int = 1, **more: Any) -> Spec:
    """The Lease of another process, which has counted its renewals in the time."""
    time = f"2026-01-01T11:00:{int(renewed):02}.000000Z"
    spec = {"holderIdentity": holder, "renewTime": time, "leaseTransitions": transitions, "leaseDurationSeconds": 15}
    return {**spec, **more}


class Watched:
    """An API server whose Lease changes with the candidate's clock: one second for each time that it reads it."""

    def __init__(self, api: FakeApi, lease_at: Callable[[int], Spec]) -> None:
        self.now = 0
        self.taken_at: int | None = None
        self._api, self._lease_at = api, lease_at
        api.failing = self._arrive

    def _arrive(self, request: Request) -> web.Response | None:
        if not request.path.endswith("/leases/leader"):
            return None
        if request.verb == "get":
            self.now += 1
            self._api.put(
                LEASES, {"metadata": {"name": "leader", "namespace": "ns"}, "spec": self._lease_at(self.now - 1)}
            )
        elif self.taken_at is None:
            self.taken_at = self.now - 1
        return None


@pytest.mark.parametrize(
    ("lease_at", "seconds"),
    [
        pytest.param(lambda now: held(), 15, id="it has died: after the lease's duration"),
        pytest.param(held, None, id="it renews each second: never"),
        pytest.param(lambda now: held(now // 14), None, id="it renews just in time: never"),
        pytest.param(lambda now: held(now >= 10), 25, id="it renewed once more"),
        pytest.param(lambda now: held(holder="third" if now >= 10 else "other"), 25, id="another process followed it"),
        pytest.param(lambda now: held(transitions=1 + (now >= 10)), 25, id="it took the lead again"),
        pytest.param(lambda now: held(leaseDurationSeconds=30), 30, id="its lease is longer than ours"),
        pytest.param(lambda now: held(leaseDurationSeconds=None), 15, id="its lease has no duration: ours"),
        pytest.param(lambda now: held(holder="", leaseDurationSeconds=1), 0, id="it has left: at once"),
        pytest.param(lambda now: held(holder=""), 15, id="a person has removed its name: it may still write"),
        pytest.param(lambda now: held(holder=None), 15, id="the Lease has no holder: nobody knows who may still write"),
        pytest.param(lambda now: held(leaseDurationSeconds=1), 15, id="its lease is shorter than ours"),
    ],
)
async def test_the_lead_is_taken_from_another_process(
    api: FakeApi, client: ApiClient, lease_at: Callable[[int], Spec], seconds: int | None
) -> None:
    watched = Watched(api, lease_at)
    name = LeaseName("ns", "leader", "ours")
    elector = Elector(client, name, lambda: float(watched.now), lambda: NOON, SETTINGS)
    task = asyncio.create_task(elector.run())
    await until_async(lambda: watched.taken_at is not None or watched.now >= LIMIT)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert watched.taken_at == seconds
