"""The parts together, without kopf: a stored job that this version cannot read, a deletion that was missed."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pytorchjob_operator import names
from pytorchjob_operator.app.operator import Operator
from pytorchjob_operator.kube.backoff import Backoff
from pytorchjob_operator.settings import Settings
from tests.app.working import working
from tests.factories import make_job
from tests.fakes.apiserver import FakeApi, Request, failure
from tests.waiting import until_async

PODS = "api/v1/pods"
EVENTS = "api/v1/events"


@pytest.fixture
async def operator(api: FakeApi) -> AsyncIterator[Operator]:
    """A working operator; it leads."""
    async with working(api) as running:
        yield running


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


LEASES = "apis/coordination.k8s.io/v1/leases"
JOBS = "apis/kubeflow.org/v1/pytorchjobs"


@pytest.fixture
async def standby(api: FakeApi) -> AsyncIterator[Operator]:
    """An operator that has filled its caches; it takes the lead once the test releases the Lease."""
    async with working(api, Settings()) as waiting:
        yield waiting


def _release(api: FakeApi) -> None:
    spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
    api.put(LEASES, {"metadata": {"name": "pytorchjob-operator", "namespace": "default"}, "spec": spec})


def _ended(body: dict[str, Any]) -> dict[str, Any]:
    now = "2026-01-01T00:00:00Z"
    done = {"type": "Succeeded", "status": "True", "reason": "PyTorchJobSucceeded", "message": "it has succeeded"}
    times = {"lastUpdateTime": now, "lastTransitionTime": now}
    return {**body, "status": {"conditions": [done | times], "completionTime": now, "startTime": now}}


async def test_a_new_leader_that_is_behind_runs_no_finished_job_again(api: FakeApi, standby: Operator) -> None:
    """The last leader finished one job and deleted another; the watch of this process has not told it yet."""
    ended, deleted, running = stored(api, "ended"), stored(api, "deleted"), stored(api, "running")
    for body in (ended, deleted, running):
        standby.job_changed("ADDED", body)
    api.put(JOBS, _ended(ended))
    api.remove(JOBS, "deleted", "ns")
    _release(api)
    await until_async(lambda: len(api.objects.get(PODS, {})) == 2)
    await until_async(lambda: not (standby.queue.active or len(standby.queue)))
    assert {name for _, name in api.objects[PODS]} == {"running-master-0", "running-worker-0"}


async def test_a_new_leader_writes_nothing_until_it_has_listed_again(api: FakeApi, standby: Operator) -> None:
    standby.job_changed("ADDED", stored(api))
    await until_async(lambda: all(reflector.synced.is_set() for reflector in standby.reflectors))
    api.failing = lambda request: failure(503, "ServiceUnavailable") if _lists_jobs(request) else None
    _release(api)
    await until_async(standby.elector.acquired.is_set)
    await until_async(lambda: sum(map(_lists_jobs, api.requests)) >= 2)
    assert api.objects.get(PODS, {}) == {}
    api.failing = lambda request: None
    await until_async(lambda: len(api.objects.get(PODS, {})) == 2)


def _lists_jobs(request: Request) -> bool:
    return request.verb == "get" and request.path.endswith("/pytorchjobs")


async def test_the_end_of_an_old_pod_wakes_the_job_that_has_its_name(api: FakeApi, operator: Operator) -> None:
    operator.queue._backoff = Backoff(first=10_000.0, cap=10_000.0)  # nothing else wakes it
    old = make_job(meta={"uid": "uid-old"})
    labels = names.replica_labels("x", names.ReplicaType.WORKER, 0)
    owner = {"uid": "uid-old", "controller": True, "kind": names.KIND, "name": "x"}
    meta = {"name": "x-worker-0", "namespace": "ns", "labels": labels, "ownerReferences": [owner]}
    api.put(PODS, {"kind": "Pod", "metadata": meta, "spec": {}})
    await until_async(lambda: operator.caches.pods.get("ns", "x-worker-0") is not None)
    operator.job_changed("DELETED", api.put(JOBS, old.to_api()))
    api.remove(JOBS, "x", "ns")
    operator.job_changed("ADDED", stored(api))
    await until_async(lambda: ("ns", "x-master-0") in api.objects[PODS] and not operator.queue.active)
    assert operator.caches.pods.get("ns", "x-worker-0").owner_uid == "uid-old"  # type: ignore[union-attr]
    api.remove(PODS, "x-worker-0", "ns")
    await until_async(lambda: ("ns", "x-worker-0") in api.objects[PODS])


async def test_an_older_state_from_a_list_of_kopf_leads_to_a_complete_list(api: FakeApi, operator: Operator) -> None:
    """After a restore of etcd the watch alone would leave the newer states in the cache for ever."""
    body = stored(api)
    operator.job_changed("ADDED", {**body, "metadata": {**body["metadata"], "resourceVersion": "9000"}})
    await operator.sweep()
    assert operator.caches.jobs.get("uid-x").metadata.resource_version == body["metadata"]["resourceVersion"]  # type: ignore[union-attr]
