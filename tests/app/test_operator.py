"""The parts together, without kopf: a stored job that this version cannot read, a deletion that was missed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from pytorchjob_operator.app.metrics import Metrics
from pytorchjob_operator.app.operator import Operator
from pytorchjob_operator.kube.config import Connection
from pytorchjob_operator.settings import Settings
from tests.factories import make_job
from tests.fakes.apiserver import FakeApi
from tests.waiting import until_async

PODS = "api/v1/pods"
EVENTS = "api/v1/events"


@pytest.fixture
async def operator(api: FakeApi) -> AsyncIterator[Operator]:
    """A working operator without the watch of jobs: the test passes the events that kopf would pass."""
    running = Operator(Settings(leader_elect=False), Connection(api.url), Metrics())
    async with running.client, running.writer:
        routines = (running.work(), running.recorder.run(), *(reflector.run() for reflector in running.reflectors))
        tasks = [asyncio.create_task(routine) for routine in routines]
        yield running
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


def stored(api: FakeApi, name: str = "x", **spec: Any) -> dict[str, Any]:
    body = make_job(name=name, meta={"uid": f"uid-{name}"}).to_api()
    return api.put("apis/kubeflow.org/v1/pytorchjobs", {**body, "spec": {**body["spec"], **spec}})


async def test_a_job_that_is_seen_gets_its_pods(api: FakeApi, operator: Operator) -> None:
    operator.job_changed("ADDED", stored(api))
    await until_async(lambda: len(api.objects.get(PODS, {})) == 2)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"pytorchReplicaSpecs": 3}, "spec.pytorchReplicaSpecs", id="a number for a mapping"),
        pytest.param({"nprocPerNode": {"a": 1}}, "spec.nprocPerNode", id="a mapping for a number"),
    ],
)
async def test_a_stored_job_that_cannot_be_read_is_told_and_harms_no_other(
    api: FakeApi, operator: Operator, spec: dict[str, Any], field: str
) -> None:
    operator.job_changed(None, stored(api, "bad", **spec))
    operator.job_changed(None, stored(api, "good"))
    await until_async(lambda: len(api.objects.get(EVENTS, {})) > 1)
    events = {event["involvedObject"]["name"]: event for event in api.objects[EVENTS].values()}
    assert (events["bad"]["reason"], field in events["bad"]["message"]) == ("InvalidSpec", True)
    assert {name for _, name in api.objects[PODS]} == {"good-master-0", "good-worker-0"}


async def test_a_deleted_job_is_forgotten(api: FakeApi, operator: Operator) -> None:
    body = stored(api)
    operator.job_changed("ADDED", body)
    operator.job_changed("DELETED", body)
    assert len(operator.caches.jobs) == 0


async def test_a_deletion_that_was_missed_is_found_by_the_sweep(api: FakeApi, operator: Operator) -> None:
    operator.job_changed("ADDED", stored(api, "gone"))
    operator.job_changed("ADDED", stored(api, "here"))
    api.remove("apis/kubeflow.org/v1/pytorchjobs", "gone", "ns")
    await operator.sweep()
    assert operator.caches.jobs.uids() == {"uid-here"}
