"""The only module that writes jobs and their children: it sends a plan's writes and stores the responses in the caches.

Writes go out in the plan's order, a limited number at a time, and stop at the first refusal, for example by a quota:
`_refusal` turns it into an event reason and the server's message, `reconcile` publishes it as a warning event, and
`plan/job_status.py` as the condition ReplicaFailure. Objects that were created stay; the next plan sees them.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.control.caches import Caches
from pytorchjob_operator.control.gate import FairGate
from pytorchjob_operator.errors import ApiError, Conflict, Leftover, NotFound, RequestRefused
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.resource import CHILDREN, PODS, Resource
from pytorchjob_operator.model import JobStatus, PyTorchJob
from pytorchjob_operator.names import ChildKind, Reason
from pytorchjob_operator.observed import Child, Pod, Refusal, controller_uid
from pytorchjob_operator.plan.writes import (
    CreateChild,
    CreatePod,
    CreateReserve,
    DeleteChild,
    DeleteJob,
    DeletePod,
    ReportWorkload,
    UpdateChild,
    Write,
)
from pytorchjob_operator.workload import reported

JOBS = Resource(names.GROUP, names.VERSION, names.PLURAL)
IN_FLIGHT = 32
"""Maximum number of concurrent requests for one job; each needs a connection of its own (HTTP/1.1)."""
_FAILED_CREATE = {
    ChildKind.SERVICE: Reason.FAILED_CREATE_SERVICE,
    ChildKind.AUTOSCALER: Reason.FAILED_CREATE_AUTOSCALER,
    ChildKind.NETWORK_POLICY: Reason.FAILED_CREATE_NETWORK_POLICY,
    ChildKind.VOLCANO_POD_GROUP: Reason.FAILED_CREATE_POD_GROUP,
    ChildKind.POD_GROUP: Reason.FAILED_CREATE_POD_GROUP,
    ChildKind.NATIVE_POD_GROUP: Reason.FAILED_CREATE_POD_GROUP,
    ChildKind.WORKLOAD: Reason.FAILED_CREATE_WORKLOAD,
}


@dataclass(frozen=True)
class Applier:
    """Sends writes for jobs; one instance serves all of them."""

    client: ApiClient
    """A client with the write fence: nothing leaves once this process may no longer be the leader."""
    caches: Caches
    gate: FairGate = field(default_factory=FairGate)

    async def write(self, job: PyTorchJob, writes: Sequence[Write]) -> Refusal | None:
        """Send all writes, and return what was refused, of each reason the first in the order of the writes.

        Raises ApiError if the outcome of a request is unknown; the caller must plan again later.
        """
        pending, stops = iter(enumerate(writes)), dict[int, Refusal | ApiError]()
        await asyncio.gather(*(self._drain(job, pending, stops) for _ in range(min(IN_FLIGHT, len(writes)))))
        in_order = [stops[number] for number in sorted(stops)]
        for stop in in_order:
            if isinstance(stop, ApiError):
                raise stop
        return _together([stop for stop in in_order if isinstance(stop, Refusal)])

    async def _drain(
        self, job: PyTorchJob, pending: Iterator[tuple[int, Write]], stops: dict[int, Refusal | ApiError]
    ) -> None:
        """Send writes until none is left or one has failed; requests that are in flight by then are completed."""
        for number, write in pending:
            try:
                async with self.gate.slot(job.metadata.namespace, job.metadata.uid):
                    if stops:
                        return
                    await self._send(job, write)
            except (RequestRefused, NotFound) as error:
                stops[number] = _refusal(write, error)
            except ApiError as error:
                stops[number] = error
            if stops:
                return

    async def _send(self, job: PyTorchJob, write: Write) -> None:
        match write:
            case CreatePod() | CreateReserve():
                self.caches.pods.put(Pod.from_api(await self._create(job, PODS, dict(write.body))))
            case CreateChild(kind, body, adopts):
                self._keep(kind, await self._create(job, CHILDREN[kind], dict(body), adopts=adopts))
            case UpdateChild(kind, uid, body):
                await self._update(job, kind, uid, dict(body))
            case ReportWorkload():
                await self._report(job, write)
            case DeletePod(name, uid, _, force):
                await self._delete_pod(job, name, uid, force)
            case DeleteChild(kind, name, uid):
                await self._delete(CHILDREN[kind], job, name, uid)
                self.caches.children[kind].gone(job.metadata.namespace, name, uid)
            case DeleteJob(name, uid):
                await self._delete(JOBS, job, name, uid)
                self.caches.jobs.forget(uid)

    async def _create(
        self, job: PyTorchJob, resource: Resource, body: dict[str, Any], *, adopts: bool = False
    ) -> dict[str, Any]:
        """Create a child; if this job already has a child of that name, the cache was behind: return that child."""
        try:
            return await self.client.create(resource, job.metadata.namespace, body)
        except Conflict as error:
            if not error.already_exists:
                raise
        name = body["metadata"]["name"]
        found = await self.client.get(resource, job.metadata.namespace, name)
        if adopts and controller_uid(found["metadata"]) is None and not found["metadata"].get("deletionTimestamp"):
            return await self.client.update(resource, job.metadata.namespace, _owned(found, body))
        if controller_uid(found["metadata"]) != job.metadata.uid:
            raise _taken(resource, found["metadata"], job)
        return found

    async def _update(self, job: PyTorchJob, kind: ChildKind, uid: str, wanted: dict[str, Any]) -> None:
        """Update a child based on its live state, so that fields set by other clients stay."""
        namespace, name = job.metadata.namespace, wanted["metadata"]["name"]
        try:
            live = await self.client.get(CHILDREN[kind], namespace, name)
        except NotFound:
            live = {}
        if live.get("metadata", {}).get("uid") != uid:
            self.caches.children[kind].gone(namespace, name, uid)
            return
        self._keep(kind, await self.client.update(CHILDREN[kind], namespace, _merged(live, wanted)))

    async def _report(self, job: PyTorchJob, write: ReportWorkload) -> None:
        """Write a report into a Workload's status, as it is now: a later version is planned for anew."""
        kind, namespace = ChildKind.WORKLOAD, job.metadata.namespace
        try:
            live = await self.client.get(CHILDREN[kind], namespace, write.name)
        except NotFound:
            live = {}
        if live.get("metadata", {}).get("uid") != write.uid:
            self.caches.children[kind].gone(namespace, write.name, write.uid)
            return
        body = reported(live, write.report, write.at)
        self._keep(kind, await self.client.update_status(CHILDREN[kind], namespace, body))

    def _keep(self, kind: ChildKind, obj: dict[str, Any]) -> None:
        self.caches.children[kind].put(Child.from_api(kind, obj))

    async def _delete_pod(self, job: PyTorchJob, name: str, uid: str, force: bool) -> None:
        """Delete one pod; the response shows the terminating pod. Force leaves a pod only if it has finalizers."""
        remaining = await self._delete(PODS, job, name, uid, grace_seconds=0 if force else None)
        if not remaining or (force and not (remaining.get("metadata") or {}).get("finalizers")):
            self.caches.pods.gone(job.metadata.namespace, name, uid)
        elif remaining.get("kind") == "Pod":
            self.caches.pods.put(Pod.from_api(remaining))

    async def _delete(
        self, resource: Resource, job: PyTorchJob, name: str, uid: str, grace_seconds: int | None = None
    ) -> dict[str, Any]:
        """Delete the object with this uid; returns {} if it is already gone or another object has its name."""
        try:
            return await self.client.delete(resource, job.metadata.namespace, name, uid, grace_seconds)
        except (NotFound, Conflict):
            return {}

    async def patch_status(self, job: PyTorchJob, status: JobStatus) -> None:
        """Write the status for exactly this version of the job; raises Conflict if a newer version exists."""
        meta = job.metadata
        unset = {field.alias: None for field in JobStatus.model_fields.values()}
        body = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": unset | _merge_patch(job.status.to_api(), status.to_api()),
        }
        try:
            async with self.gate.slot(meta.namespace, meta.uid):
                self.caches.jobs.put(await self.client.patch_status(JOBS, meta.namespace, meta.name, body))
        except NotFound:
            self.caches.jobs.forget(meta.uid)

    async def confirm(self, job: PyTorchJob) -> bool:
        """Return whether the cached job is current; read from the server before its children change, and cached.

        Without this check a deleted job would get pods for ever, and a job that was just scaled up would lose its new
        pod.
        """
        try:
            found = await self.client.get(JOBS, job.metadata.namespace, job.metadata.name)
        except NotFound:
            found = {}
        if found.get("metadata", {}).get("uid") != job.metadata.uid:
            self.caches.jobs.forget(job.metadata.uid)
            return False
        self.caches.jobs.put(found)
        return self.caches.jobs.get(job.metadata.uid) == job


def _merge_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch that replaces `old` by `new` at every depth: a missing key is set to None."""
    removed = {key: None for key in old if key not in new}
    changed = {
        key: _merge_patch(old.get(key) or {}, value) if isinstance(value, dict) else value for key, value in new.items()
    }
    return {**removed, **changed}


def _merged(live: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the live object with the wanted labels, annotations and spec fields set, one level deep."""
    meta, new = live["metadata"], wanted["metadata"]
    texts = {key: {**(meta.get(key) or {}), **new[key]} for key in ("labels", "annotations")}
    return {**live, "metadata": {**meta, **texts}, "spec": {**(live.get("spec") or {}), **wanted["spec"]}}


def _owned(live: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the live object with the owner, the labels and the annotations of the wanted one."""
    meta, new = live["metadata"], wanted["metadata"]
    texts = {key: {**(meta.get(key) or {}), **new[key]} for key in ("labels", "annotations")}
    owners = [*(meta.get("ownerReferences") or ()), *new["ownerReferences"]]
    return {**live, "metadata": {**meta, **texts, "ownerReferences": owners}}


def _together(refusals: Sequence[Refusal]) -> Refusal | None:
    """Return one refusal with the messages of all reasons; the message of a reason is its first."""
    first: dict[names.Reason, Refusal] = {}
    for refusal in refusals:
        first.setdefault(refusal.reason, refusal)
    if len(first) < 2:
        return next(iter(first.values()), None)
    return Refusal(next(iter(first)), "; ".join(f"{refusal.reason}: {refusal.message}" for refusal in first.values()))


def _taken(resource: Resource, meta: dict[str, Any], job: PyTorchJob) -> RequestRefused:
    """Return the error for a name that an object of another owner has."""
    what = f"{resource.plural} {meta['name']!r}"
    owners = meta.get("ownerReferences") or ()
    former = any((owner.get("kind"), owner.get("name")) == (names.KIND, job.metadata.name) for owner in owners)
    if former or meta.get("deletionTimestamp"):
        return Leftover(
            409, Reason.DELETED_JOB_REMAINS, f"waiting until {what} of the deleted job of this name is gone"
        )
    problem = f"{what} already exists and does not belong to this job"
    return RequestRefused(409, Reason.NAME_TAKEN, f"{problem}: delete it or rename the job")


def _refusal(write: Write, error: ApiError) -> Refusal:
    """Return what the user sees of a refused write: the event reason, and the server's message (quota, admission)."""
    if error.reason in (Reason.NAME_TAKEN, Reason.DELETED_JOB_REMAINS):
        return Refusal(Reason(error.reason), error.message, isinstance(error, Leftover))
    match write:
        case CreateChild(kind):
            return Refusal(_FAILED_CREATE[kind], error.message)
        case CreatePod() | CreateReserve():
            return Refusal(Reason.FAILED_CREATE_POD, error.message)
        case ReportWorkload(name):
            return Refusal(Reason.FAILED_UPDATE, f"Workload {name}: {error.message}")
        case UpdateChild(kind):
            return Refusal(Reason.FAILED_UPDATE, f"{kind.value}: {error.message}")
        case _:
            return Refusal(Reason.FAILED_DELETE, error.message)
