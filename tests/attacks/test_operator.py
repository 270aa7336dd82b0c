"""An intruder who may edit Leases, or who is a tenant of the cluster with jobs and pods of his own.

He wants two leaders, a leader that repeats a term, no leader at all, another tenant's job ended, or all other jobs
delayed. docs/security.md has what stays open: whoever may edit the operator's Lease can keep it without a leader.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from pytorchjob_operator import names
from pytorchjob_operator.app.operator import Operator
from pytorchjob_operator.errors import Conflict, Unavailable
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from pytorchjob_operator.kube.lease import Elector, LeaseLostError, LeaseName, LeaseSettings
from pytorchjob_operator.kube.resource import PODS as POD_RESOURCE
from tests.app.working import working
from tests.attacks.bystander import Bystander, timed_async, watching
from tests.factories import make_job
from tests.fakes.apiserver import FakeApi, serving
from tests.waiting import until_async

LEASES, JOBS, PODS, EVENTS = (
    "apis/coordination.k8s.io/v1/leases",
    "apis/kubeflow.org/v1/pytorchjobs",
    "api/v1/pods",
    "api/v1/events",
)
QUICK = LeaseSettings(duration=2.0, deadline=1.5, period=0.05, request=0.5)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RELEASED = {"holderIdentity": "", "leaseDurationSeconds": 1}
Edit = Callable[[FakeApi], object]


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving() as server:
        yield server


class Race:
    """Two electors for one Lease, what an intruder would have to reach, and an innocent job that the leader writes."""

    def __init__(self, api: FakeApi, client: ApiClient) -> None:
        clock = asyncio.get_running_loop().time
        self.electors = [
            Elector(client, LeaseName("ns", "leader", name), clock, lambda: NOON + timedelta(seconds=clock()), QUICK)
            for name in ("one", "two")
        ]
        self.writers = [ApiClient(ApiEndpoint(api.url), "test/1", elector.fence) for elector in self.electors]
        self.tasks: list[asyncio.Task[None]] = []
        self.two_lead = False
        self._written = count()

    async def start(self) -> None:
        """Let the first one lead, then let the second one stand by."""
        for elector in self.electors:
            self.tasks.append(asyncio.create_task(elector.run()))
            if elector is self.electors[0]:
                await elector.acquired.wait()

    async def until_second_leads(self) -> None:
        while not self.electors[1].acquired.is_set():
            self.two_lead |= all(elector.valid() for elector in self.electors)
            await asyncio.sleep(0.001)
        self.two_lead |= all(elector.valid() for elector in self.electors)

    async def write(self) -> None:
        """Create a pod of a calm job, by the process that leads once there is one."""
        body = {"metadata": {"name": f"calm-{next(self._written)}"}}

        async def written() -> bool:
            leader = next((writer for writer in self.writers if writer.may_write()), None)
            try:
                return leader is not None and bool(await leader.create(POD_RESOURCE, "calm", body))
            except Conflict:
                return True  # it arrived before, and the answer did not
            except Unavailable:
                return False

        await until_async(written, every=0.001)


@pytest.fixture
async def race(api: FakeApi) -> AsyncIterator[Race]:
    edit_lease(api, RELEASED)
    async with ApiClient(ApiEndpoint(api.url), "test/1") as client:
        running = Race(api, client)
        first, second = running.writers
        async with first, second:
            await running.start()
            yield running
            for task in running.tasks:
                task.cancel()
            for task in running.tasks:
                with suppress(asyncio.CancelledError, LeaseLostError):
                    await task


@pytest.fixture
async def served(race: Race) -> AsyncIterator[Bystander]:
    """What an innocent job notices of the leader."""
    async with watching("a write for another job, by the process that leads", lambda: timed_async(race.write)) as found:
        yield found


def edit_lease(api: FakeApi, spec: Any) -> None:
    api.put(LEASES, {"metadata": {"name": "leader", "namespace": "ns"}, "spec": spec})


def _delete(api: FakeApi) -> None:
    api.remove(LEASES, "leader", "ns")


def _delete_and_create(api: FakeApi) -> None:
    _delete(api)
    edit_lease(api, {"leaseTransitions": 0})


def _forget_the_terms(api: FakeApi) -> None:
    edit_lease(api, {"holderIdentity": "intruder", "leaseTransitions": 0, "leaseDurationSeconds": 1})


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(_delete, id="delete the Lease"),
        pytest.param(_delete_and_create, id="delete the Lease and create an empty one"),
        pytest.param(lambda api: edit_lease(api, None), id="clear the Lease"),
        pytest.param(_forget_the_terms, id="take the Lease for a second, with term 0"),
        pytest.param(lambda api: edit_lease(api, {"holderIdentity": ["x"], "leaseTransitions": "x"}), id="break it"),
    ],
)
async def test_two_leaders_or_a_repeated_term_by_editing_the_lease(
    api: FakeApi, race: Race, served: Bystander, attack: Edit
) -> None:
    first, second = race.electors
    attack(api)
    await race.until_second_leads()
    await served.settled()
    assert (race.two_lead, first.valid(), second.term > first.term) == (False, False, True)


@pytest.mark.without_bystander("its time is simulated")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"holderIdentity": "dead", "leaseDurationSeconds": 2**31 - 1}, id="a lease of 68 years"),
        pytest.param({"holderIdentity": "dead", "leaseTransitions": 2**31 - 1}, id="no term is left"),
        pytest.param({"holderIdentity": "dead", "renewTime": "9999-12-31T23:59:59.999999Z"}, id="renewed in year 9999"),
        pytest.param({"holderIdentity": {"a": []}, "leaseDurationSeconds": "x", "leaseTransitions": []}, id="no Lease"),
    ],
)
async def test_no_leader_ever_again_by_a_lease_that_nobody_renews(spec: dict[str, Any]) -> None:
    """Time passes as fast as the elector asks for it: it leads within a minute, in a term that is not repeated."""
    now, stored = [0.0], {"metadata": {"name": "leader", "uid": "u"}, "spec": spec}

    class Server:
        async def get(self, *where: object) -> dict[str, Any]:
            now[0] += 2.0
            return stored

        async def update(self, *where: Any) -> dict[str, Any]:
            return dict(where[-1])

    settings = LeaseSettings(period=0.0)
    lease = LeaseName("ns", "leader", "one")
    elector = Elector(Server(), lease, lambda: now[0], lambda: NOON, settings)  # type: ignore[arg-type]
    task = asyncio.create_task(elector.run())
    await until_async(elector.acquired.is_set)
    assert (now[0] <= 64.0, elector.term) == (True, int(NOON.timestamp()))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_writes_of_a_deposed_leader_by_holding_up_its_connection(
    api: FakeApi, race: Race, served: Bystander
) -> None:
    """A proxy holds the leader's requests until another leads; then they may do nothing."""
    first = race.electors[0]
    async with ApiClient(ApiEndpoint(api.url), "test/1", first.fence) as writer:
        gate = asyncio.Event()

        async def held_up(*, fresh: bool = False) -> str | None:
            await gate.wait()
            return "token"

        writer._connection = ApiEndpoint(api.url, token=held_up)
        body = {"metadata": {"name": "late"}}
        writes = [asyncio.create_task(writer.create(POD_RESOURCE, "ns", body)) for _ in range(32)]
        await asyncio.sleep(0)
        _delete(api)
        await until_async(lambda: not first.valid())
        gate.set()
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        await served.settled()
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 32
    assert {namespace for namespace, _ in api.objects[PODS]} == {"calm"}


@pytest.fixture
async def operator(api: FakeApi) -> AsyncIterator[Operator]:
    """A working operator; it leads."""
    async with working(api) as running:
        yield running


def stored(api: FakeApi, name: str, namespace: str = "ns", workers: int = 1, **more: Any) -> dict[str, Any]:
    meta = {"uid": f"uid-{namespace}-{name}", "namespace": namespace}
    return api.put(JOBS, {**make_job(name=name, meta=meta, workers=workers).to_api(), **more})


class CalmTenant:
    """Creates a job of one pod, and another one once it has the pod."""

    def __init__(self, api: FakeApi, operator: Operator) -> None:
        self._api, self._operator, self._numbers = api, operator, count()

    async def job(self) -> float:
        """Return the seconds from the event of the job to its pod; then the job is deleted."""
        name = f"calm-{next(self._numbers)}"
        started, pod, body = time.perf_counter(), ("calm", f"{name}-master-0"), stored(self._api, name, "calm", 0)
        self._operator.job_changed("ADDED", body)
        await until_async(lambda: pod in self._api.objects.get(PODS, {}), every=0.001)
        seconds = time.perf_counter() - started
        self._operator.job_changed("DELETED", body)
        for collection, found in self._api.objects.items():
            for namespace, of in [key for key in found if key[0] == "calm"]:
                self._api.remove(collection, of, namespace)
        return seconds


@pytest.fixture
async def calm(api: FakeApi, operator: Operator) -> AsyncIterator[Bystander]:
    """What a tenant of another namespace notices of the operator."""
    what = "a job of another namespace: from its creation to its pod"
    async with watching(what, CalmTenant(api, operator).job) as found:
        yield found


_CONDITION = {
    "type": "Running",
    "status": "True",
    "reason": "x" * 1024,
    "message": "y" * 32768,
    "lastUpdateTime": "2026-01-01T00:00:00Z",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
HOSTILE = [
    pytest.param({"status": {"conditions": [_CONDITION] * 30}}, id="a megabyte of conditions"),
    pytest.param({"status": {"conditions": [{}] * 10_000}}, id="ten thousand empty conditions"),
    pytest.param({"status": {"conditions": "no list", "replicaStatuses": 7}}, id="a status of other types"),
    pytest.param({"status": {"restarts": -(2**63), "replacing": ["u"] * 50_000}}, id="impossible counters"),
    pytest.param({"status": {"elastic": {"round": "9" * 10_000 + ".1", "members": 10**30}}}, id="an endless round id"),
    pytest.param({"status": None, "spec": None}, id="neither status nor spec"),
    pytest.param(
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2**40, "template": {}}}}}, id="a trillion replicas"
    ),
    pytest.param(
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [[]]}}}}}},
        id="a container that is a list",
    ),
]


@pytest.mark.parametrize("fields", HOSTILE)
async def test_other_jobs_without_an_operator_by_a_hostile_object(
    api: FakeApi, operator: Operator, calm: Bystander, fields: dict[str, Any]
) -> None:
    """The schema refuses most of them; objects from before an upgrade, or a later schema, may look like this."""

    async def edit() -> None:
        operator.job_changed(None, stored(api, "evil", "evil", **fields))
        api.history.pop()  # no watch reads it, and a megabyte each time would fill the memory
        await asyncio.sleep(0.01)

    await calm.during(edit)
    operator.job_changed(None, stored(api, "good"))
    await until_async(lambda: {("ns", "good-master-0"), ("ns", "good-worker-0")} <= set(api.objects.get(PODS, {})))


@pytest.mark.parametrize("phase", ["Failed", "Succeeded", "Running"])
async def test_another_tenants_job_ended_by_a_pod_of_ones_own(
    api: FakeApi, operator: Operator, calm: Bystander, phase: str
) -> None:
    """The intruder names the victim's job as the owner of a pod of his own namespace; a uid is no secret."""

    async def pose() -> None:
        _put_foreign_pods(api, phase)
        await asyncio.sleep(0.01)

    await calm.during(pose)
    await until_async(lambda: operator.caches.pods.get("evil", "victim-worker-0") is not None)
    operator.job_changed("ADDED", stored(api, "victim"))
    await until_async(lambda: ("ns", "victim-worker-0") in api.objects[PODS])
    await until_async(lambda: not operator.queue.active)
    status = api.objects[JOBS][("ns", "victim")].get("status") or {}
    assert [condition["type"] for condition in status["conditions"] if condition["status"] == "True"] == ["Created"]


def _put_foreign_pods(api: FakeApi, phase: str) -> None:
    owner = {"uid": "uid-ns-victim", "controller": True, "kind": names.KIND, "name": "victim"}
    for name, role in (("victim-master-0", names.ReplicaType.MASTER), ("victim-worker-0", names.ReplicaType.WORKER)):
        labels = names.replica_labels("victim", role, 0)
        meta = {"name": name, "namespace": "evil", "labels": labels, "ownerReferences": [owner]}
        api.put(PODS, {"kind": "Pod", "metadata": meta, "spec": {}, "status": {"phase": phase}})


async def test_other_namespaces_delayed_by_many_large_jobs(api: FakeApi, operator: Operator, calm: Bystander) -> None:
    """16 jobs fill all that one namespace may have in process; the small job comes in the middle."""
    for index in range(16):
        operator.job_changed("ADDED", stored(api, f"large-{index}", "greedy", workers=400))
    await until_async(lambda: _greedy(api) >= 64)
    before = _greedy(api)
    operator.job_changed("ADDED", stored(api, "small", "modest"))
    await until_async(lambda: ("modest", "small-worker-0") in api.objects[PODS], every=0.001)
    made_meanwhile = _greedy(api) - before
    assert made_meanwhile < 16 * 32
    await calm.settled()


def _greedy(api: FakeApi) -> int:
    """Return how many pods the large jobs have."""
    return sum(namespace == "greedy" for namespace, _ in api.objects.get(PODS, {}))
