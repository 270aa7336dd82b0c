"""A fake API server and the parts that reconcile against it; what a watch would bring, the test brings by hand."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from aiohttp import web

from pytorchjob_operator import names
from pytorchjob_operator.control.apply import Applier
from pytorchjob_operator.control.caches import Caches
from pytorchjob_operator.control.cluster_objects import ClusterObjects
from pytorchjob_operator.control.job_cache import JobCache
from pytorchjob_operator.control.namespaces import Namespaces
from pytorchjob_operator.control.nodes import Nodes
from pytorchjob_operator.control.reconcile import Reconciler
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from pytorchjob_operator.kube.fence import Fence
from pytorchjob_operator.kube.recorder import Recorder, RecorderSettings, Reporter
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.observed import Child, Pod
from tests.factories import JOB_UID, NOW
from tests.fakes.apiserver import FakeApi, Request, failure, serving
from tests.waiting import SECONDS

JOBS = "apis/kubeflow.org/v1/pytorchjobs"
PODS = "api/v1/pods"
SERVICES = "api/v1/services"
EVENTS = "api/v1/events"
NAMESPACE = "ns"
Object = dict[str, Any]


class Lead(Fence):
    """A write fence that is open for as long as the test says."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop().time)
        self.holds: Callable[[], bool] = lambda: True

    def remaining(self) -> float:
        return 60.0 if self.holds() else 0.0


class World:
    """One job named x, and everything around it."""

    def __init__(self, api: FakeApi, client: ApiClient, fence: "Lead") -> None:
        clock = asyncio.get_running_loop().time
        self.api = api
        self.now = NOW
        self.fence = fence
        self.caches = Caches(JobCache(), Store[Pod](clock), {kind: Store[Child](clock) for kind in ChildKind})
        settings = RecorderSettings(per_second=10_000)
        self.recorder = Recorder(client, Reporter("pytorchjob-controller", "test"), clock, lambda: self.now, settings)
        self.applier = Applier(client, self.caches)
        self.reconciler = Reconciler(
            self.caches,
            self.applier,
            self.recorder,
            lambda: self.now,
            Nodes(client),
            Namespaces(client, lambda: self.now),
            ClusterObjects(client),
        )

    def submit(self, job: PyTorchJob) -> None:
        """Store the job and refresh the caches."""
        self.api.put(JOBS, job.to_api())
        self.refresh()

    def refresh(self) -> None:
        """Bring the caches up to date, as the watches do in a moment."""
        for job in self.api.objects.get(JOBS, {}).values():
            self.caches.jobs.put(job)
        for pod in self.api.objects.get(PODS, {}).values():
            self.caches.pods.put(Pod.from_api(pod))
        for service in self.api.objects.get(SERVICES, {}).values():
            self.caches.children[ChildKind.SERVICE].put(Child.from_api(ChildKind.SERVICE, service))
        for pod in self.caches.pods.by_owner(JOB_UID):
            if (NAMESPACE, pod.name) not in self.api.objects.get(PODS, {}):
                self.caches.pods.gone(NAMESPACE, pod.name, pod.uid)

    async def reconcile(self) -> float | None:
        """One pass over the job, and its events sent."""
        try:
            return await self.reconciler(JOB_UID)
        finally:
            await self.recorder.drained()

    def report(self, phase: str, *pods: str, **status: Any) -> None:
        """Set the phase and further status fields of these pods, of all pods without names, and refresh the caches."""
        for name in pods or self.pods:
            known = self.api.objects[PODS][(NAMESPACE, name)]
            self.api.put(PODS, {**known, "status": {"phase": phase, **status}})
        self.refresh()

    def edit(self, **run_policy: Any) -> None:
        """Change the job's runPolicy, as `kubectl patch` does, and refresh the caches."""
        job = self.job.to_api()
        spec = {**job["spec"], "runPolicy": {**job["spec"]["runPolicy"], **run_policy}}
        meta = {**job["metadata"], "generation": job["metadata"]["generation"] + 1}
        self.api.put(JOBS, {**job, "spec": spec, "metadata": meta})
        self.refresh()

    def linger(self) -> None:
        """From now on a pod that is deleted keeps its name, as it does for its grace period."""
        self.api.failing = lambda request: self._lingering(request) if deletes_pod(request) else None

    def _lingering(self, request: Request) -> web.Response:
        pod = self.api.objects[PODS][(NAMESPACE, request.path.rpartition("/")[2])]
        meta = {"creationTimestamp": NOW.isoformat(), "deletionTimestamp": self.now.isoformat(), **pod["metadata"]}
        return web.json_response(self.api.put(PODS, {**pod, "metadata": meta}))

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @property
    def pods(self) -> list[str]:
        return [name for _, name in self.api.objects.get(PODS, {})]

    @property
    def job(self) -> PyTorchJob:
        """The job as the API server has it."""
        return PyTorchJob.model_validate(self.api.objects[JOBS][(NAMESPACE, "x")])

    @property
    def conditions(self) -> dict[str, str]:
        """Reason by type of those that hold."""
        return {
            condition.type.value: condition.reason
            for condition in self.job.status.conditions
            if condition.status == "True"
        }

    @property
    def events(self) -> list[str]:
        return [event["reason"] for event in self.api.objects.get(EVENTS, {}).values()]

    def asked(self) -> Counter[tuple[str, str]]:
        """How often what was asked of which kind of object; Events aside."""
        seen = ((request.verb, _plural(request.path)) for request in self.api.requests)
        return Counter(call for call in seen if call[1] != "events")

    def refuse_pods(self, answer: Callable[[], web.Response], after: int = 0) -> None:
        """Answer so to every creation of a pod but the first few."""
        let_through = iter(range(after))

        def fault(request: Request) -> web.Response | None:
            if creates_pod(request) and next(let_through, None) is None:
                return answer()
            return None

        self.api.failing = fault

    def heal(self) -> None:
        self.api.failing = lambda request: None


def creates_pod(request: Request) -> bool:
    return request.verb == "create" and request.path.endswith("/pods")


def deletes_pod(request: Request) -> bool:
    return request.verb == "delete" and "/pods/" in request.path


def quota() -> web.Response:
    return failure(403, "Forbidden", 'pods "x-worker-0" is forbidden: exceeded quota: few')


def owned_by(uid: str | None, name: str) -> Object:
    """A pod, controlled by this uid."""
    owners = [{"uid": uid, "controller": True, "kind": names.KIND, "name": "x"}] if uid else []
    labels = names.replica_labels("x", names.ReplicaType.WORKER, 0)
    meta = {"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": owners}
    return {"kind": "Pod", "metadata": meta, "spec": {}}


def _plural(path: str) -> str:
    rest = path.split("/namespaces/ns/")[-1].split("/")
    return "/".join([rest[0], *rest[2:]])


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    fence = Lead()
    async with serving() as api, ApiClient(ApiEndpoint(api.url), "test/1", fence, request_timeout=SECONDS) as client:
        world = World(api, client, fence)
        sending = asyncio.create_task(world.recorder.run())
        yield world
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
