"""The parts of the running operator and their connections; each part is built only here."""

import asyncio
import logging
import socket
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pytorchjob_operator import __version__, names
from pytorchjob_operator.app.child_watch import ChildWatch
from pytorchjob_operator.app.coordinator_service import ClusterAccess, CoordinatorService, ServiceHooks
from pytorchjob_operator.app.counts import JobCounts
from pytorchjob_operator.app.job_watch import Contacts, JobWatch, build_registry
from pytorchjob_operator.app.metrics import Metrics
from pytorchjob_operator.app.node_watch import NodeWatch
from pytorchjob_operator.app.waiting import event_or_timeout
from pytorchjob_operator.control.apply import JOBS, Applier
from pytorchjob_operator.control.caches import Caches
from pytorchjob_operator.control.cluster_objects import ClusterObjects
from pytorchjob_operator.control.gate import FairGate
from pytorchjob_operator.control.job_cache import JobCache
from pytorchjob_operator.control.namespaces import Namespaces
from pytorchjob_operator.control.nodes import Nodes
from pytorchjob_operator.control.queue import WorkQueue
from pytorchjob_operator.control.reconcile import Reconciler
from pytorchjob_operator.errors import ApiError, Conflict, InvalidJob
from pytorchjob_operator.kube.backoff import Backoff
from pytorchjob_operator.kube.client import ApiClient, Scope
from pytorchjob_operator.kube.endpoint import ApiEndpoint
from pytorchjob_operator.kube.lease import Elector, LeaseName
from pytorchjob_operator.kube.recorder import Involved, Recorder, Reporter
from pytorchjob_operator.kube.reflector import Reflector
from pytorchjob_operator.kube.resource import PODS, SERVICES
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.observed import Child, CoordinatorAccess, Pod
from pytorchjob_operator.plan import reserves
from pytorchjob_operator.rounds.state import JobEvent
from pytorchjob_operator.settings import Settings

logger = logging.getLogger(__name__)
USER_AGENT = f"pytorchjob-operator/{__version__}"
CRD_POLL_SECONDS = 2.0
SWEEP_SECONDS = 600.0
SWEEP_PAUSE_SECONDS = 1.0
"""How long a sweep waits for more jobs of a list that kopf has requested again."""
PODS_PER_PASS = 500
"""The most pods that one pass over a job creates; then other jobs have their turn."""
CALM_SECONDS_PER_POD = 0.0001
"""How long a pass over a job waits for more events of its pods. The cost of a pass grows with the number of pods, and a
thousand pods that start would cause a thousand passes."""


def now() -> datetime:
    """The wall clock, used only for statuses, events and deadlines."""
    return datetime.now(UTC)


class Operator:
    """The watches, caches, queue and writers of one process."""

    def __init__(self, settings: Settings, connection: ApiEndpoint, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._clock: Callable[[], float] = self._loop.time
        self.queue: WorkQueue[str] = WorkQueue(lane=self._namespace_of)
        self.caches = Caches(
            jobs=JobCache(lambda old, new: self._counts.changed(old, new)),
            pods=Store[Pod](self._clock, self._child_changed, on_gone=self._child_gone),
            children={
                kind: Store[Child](self._clock, self._child_changed, on_gone=self._child_gone) for kind in ChildKind
            },
            options=replace(settings.options(), pods_per_pass=PODS_PER_PASS),
        )
        self.client = ApiClient(connection, USER_AGENT, on_request=metrics.on_request)
        # A request for the Lease must never wait behind the writes that the Lease guards.
        self.lease_client = ApiClient(connection, USER_AGENT, on_request=metrics.on_request)
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._namespace = settings.lease_namespace or connection.namespace
        lease = LeaseName(self._namespace, settings.lease_name, identity)
        self.elector = Elector(self.lease_client, lease, self._clock, now)
        # Everything that only the leader may write. The Secret is no part of it: any replica may create it.
        fence = self.elector.fence if settings.leader_elect else None
        self.writer = ApiClient(connection, USER_AGENT, fence, on_request=metrics.on_request)
        self.recorder = Recorder(self.writer, Reporter(names.CONTROLLER, identity), self._clock, now)
        self.reflectors = tuple(self._reflectors())
        applier = Applier(self.writer, self.caches, FairGate(settings.max_in_flight))
        self.node_watch = NodeWatch(self.client, self._nodes_changed, conditions=settings.node_conditions)
        self.caches.nodes = self.node_watch.store
        self.children = ChildWatch(self.client, self.caches, settings.namespaces, self._reconcile_all)
        self._counts = JobCounts(metrics, self.caches.pods, self._has_lead)
        cluster = ClusterAccess(
            self.client, self.writer, self._namespace, self.caches.pods, self._outage, self.may_write
        )
        self.coordinator = CoordinatorService(settings, cluster, ServiceHooks(self._round_changed, self._reachable))
        self.reconciler = Reconciler(
            self.caches,
            applier,
            self.recorder,
            now,
            Nodes(self.client),
            Namespaces(self.client, now),
            ClusterObjects(self.client),
            self.children.want,
            self._counts.lost,
            self.coordinator,
        )
        contacts, self._kopf_listed = Contacts(), asyncio.Event()
        registry = build_registry(connection, USER_AGENT, self._in_loop, contacts)
        self.jobs = JobWatch(registry, settings.namespaces, contacts)

    def may_write(self) -> bool:
        """True while this process is the leader."""
        return self.writer.may_write()

    def _has_lead(self) -> bool:
        """True once this process has become the leader; unlike the fence, also while the Lease cannot be renewed."""
        return not self.settings.leader_elect or self.elector.acquired.is_set()

    def _outage(self) -> float:
        """Return the seconds since the API server last sent something. Called from the coordinator's thread too."""
        return min(reflector.last_contact_age(self._clock()) for reflector in self.reflectors)

    async def watch_jobs(self) -> None:
        """Start kopf once the CRD is served, then compare the cache with a complete list every `SWEEP_SECONDS`.

        kopf reports no deletion that happened while its watch was down, and a deleted job must not stay cached. So the
        cache is also compared whenever kopf has listed the jobs.
        """
        await self._crd_served()
        self.jobs.start()
        while True:
            await event_or_timeout(self._kopf_listed, SWEEP_SECONDS)
            await asyncio.sleep(SWEEP_PAUSE_SECONDS)
            self._kopf_listed.clear()
            try:
                await self.sweep()
            except ApiError as error:
                logger.warning("the jobs could not be listed; retrying in %.0f s: %s", SWEEP_SECONDS, error)

    async def work(self) -> None:
        """Reconcile, once the caches are complete and this process is the leader."""
        for reflector in self.reflectors:
            await reflector.synced.wait()
        await self.coordinator.prepare()
        if self.settings.leader_elect:
            await self.elector.acquired.wait()
        self.coordinator.start(self._term())
        if self.settings.leader_elect:
            await self._catch_up()
        await self.queue.run(self._reconcile, self.settings.workers)

    async def _catch_up(self) -> None:
        """Read what the last leader has written, before this one writes: watches may be behind."""
        backoff, attempt = Backoff(first=0.2, cap=5.0), 0
        while True:
            try:
                await asyncio.gather(self.sweep(), *(reflector.refresh() for reflector in self.reflectors))
                return
            except ApiError as error:
                logger.warning("the caches could not be read again, and nothing is written before: %s", error)
            await asyncio.sleep(backoff.delay(attempt))
            attempt += 1

    def _reachable(self, access: CoordinatorAccess) -> None:
        """Give new pods this way to the coordinator."""
        self.caches.options = replace(self.caches.options, coordinator=access)

    def _term(self) -> int:
        """The leadership term, higher than that of every earlier leader; without leader election, the wall clock."""
        return self.elector.term if self.settings.leader_elect else int(now().timestamp())

    def _round_changed(self, uid: str, events: tuple[JobEvent, ...]) -> None:
        """Reconcile a job whose rounds have changed, and publish the coordinator's events."""
        job = self.caches.jobs.get(uid)
        if job is None:
            return
        self.queue.add(uid)
        meta = job.metadata
        about = Involved(names.API_VERSION, names.KIND, meta.namespace, meta.name, uid)
        for event in events:
            self.metrics.on_round_event(meta.namespace, event.reason)
            if self.may_write():
                kind = names.EventType.WARNING if event.warning else names.EventType.NORMAL
                self.recorder.event(about, kind, event.reason, event.message)

    async def _reconcile(self, uid: str) -> None:
        started, result = self._clock(), "error"
        if self.settings.watch_nodes and self._uses_nodes(uid):
            self.node_watch.want()
        try:
            wait = await self.reconciler(uid)
            result = "success"
        except Conflict:
            # Another client changed the job: the watch will deliver the new version, unless it is down.
            self.queue.retry(uid)
            wait, result = None, "conflict"
        finally:
            self.metrics.on_reconcile(result, self._clock() - started)
        if wait is not None:
            self.queue.add_after(uid, wait)

    def _uses_nodes(self, uid: str) -> bool:
        """Whether anything follows from announcements: the coordinator asks workers to save, or a place is kept."""
        job = self.caches.jobs.get(uid)
        return self.settings.coordinator or (job is not None and reserves.wanted(job) > 0)

    def _nodes_changed(self, names_of_nodes: frozenset[str]) -> None:
        """Reconcile the jobs with pods on these nodes."""
        for job in self.caches.jobs:
            uid = job.metadata.uid
            if any(pod.node in names_of_nodes for pod in self.caches.pods.by_owner(uid)):
                self.queue.add(uid)

    def _reconcile_all(self) -> None:
        for job in self.caches.jobs:
            self.queue.add(job.metadata.uid)

    def _reflectors(self) -> "list[Reflector[Pod] | Reflector[Child]]":
        reflectors: list[Reflector[Pod] | Reflector[Child]] = []
        service_store = self.caches.children[ChildKind.SERVICE]
        for namespace in self.settings.namespaces or (None,):
            pods = Scope(PODS, namespace, names.operator_selector())
            services = Scope(SERVICES, namespace, names.operator_selector())
            reflectors.append(Reflector(self.client, pods, self.caches.pods, Pod.from_api))
            reflectors.append(Reflector(self.client, services, service_store, _service))
        return reflectors

    def _child_changed(self, owner_uid: str) -> None:
        if self.caches.jobs.get(owner_uid) is not None:
            self.queue.add_after(owner_uid, CALM_SECONDS_PER_POD * self.caches.pods.count(owner_uid))

    def _child_gone(self, child: Pod | Child) -> None:
        """Reconcile a job that may wait for this name: the child may have belonged to a job of the same name before."""
        for name in (child.name, child.name.rsplit("-", 2)[0]):
            uid = self.caches.jobs.named(child.namespace, name)
            if uid is not None and uid != child.owner_uid:
                self.queue.add(uid)

    def _namespace_of(self, uid: str) -> str:
        job = self.caches.jobs.get(uid)
        return job.metadata.namespace if job else ""

    def _in_loop(self, kind: str | None, obj: dict[str, Any]) -> None:
        """Pass an event of a job from kopf's thread, which calls this, to the event loop."""
        self._loop.call_soon_threadsafe(self.job_changed, kind, obj)

    def job_changed(self, kind: str | None, obj: dict[str, Any]) -> None:
        """Store an event of the job watch in the cache and queue the job; kind None is the first list."""
        meta = obj["metadata"]
        if kind is None:
            self._kopf_listed.set()
        if kind == "DELETED":
            self.caches.jobs.forget(meta["uid"])
        else:
            try:
                self.caches.jobs.put(obj)
            except InvalidJob as error:
                self._report_invalid(meta, error)
                return
        self.queue.add(meta["uid"])

    def _report_invalid(self, meta: dict[str, Any], error: InvalidJob) -> None:
        logger.warning("%s/%s is invalid and is not reconciled: %s", meta["namespace"], meta["name"], error)
        if self.may_write():
            about = Involved(names.API_VERSION, names.KIND, meta["namespace"], meta["name"], meta["uid"])
            self.recorder.event(about, names.EventType.WARNING, names.Reason.INVALID, str(error))

    async def _crd_served(self) -> None:
        """Wait for the CRD: kopf checks only once, at its start, whether the kind exists."""
        logged = ""
        while True:
            try:
                async for _ in self.client.list(self._job_scopes()[0], limit=1):
                    return
            except ApiError as error:
                if str(error) != logged:
                    logged = str(error)
                    logger.warning("waiting for the resource %s.%s: %s", names.PLURAL, names.GROUP, error)
            await asyncio.sleep(CRD_POLL_SECONDS)

    async def sweep(self) -> None:
        """Make the cache equal to a complete list of the jobs, as the API server has them in etcd now."""
        relist = self.caches.jobs.relist()
        for scope in self._job_scopes():
            async for page in self.client.list(scope, limit=100):
                relist.page(page.items, page.resource_version)
        for uid in relist.finish():
            self.queue.add(uid)

    def _job_scopes(self) -> list[Scope]:
        return [Scope(JOBS, namespace) for namespace in self.settings.namespaces or (None,)]


def _service(obj: dict[str, Any]) -> Child:
    return Child.from_api(ChildKind.SERVICE, obj)
