"""The life of an elector against a server in memory, second by second, without waiting."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from pytorchjob_operator.errors import Conflict, NotFound, Unavailable
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.lease import Elector, LeaseLostError, LeaseName, LeaseSettings
from pytorchjob_operator.kube.resource import LEASES, Resource
from tests.fakes.timeless import play

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW = int(NOON.timestamp())
Lease = dict[str, Any]
Fault = Callable[[float, str], Exception | float | None]
"""What happens to a request of this time and kind: an error, or the seconds that it takes."""


def lease(holder: object = "", duration: object = 1, transitions: object = 1, uid: str = "first", **more: Any) -> Lease:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration, "leaseTransitions": transitions, **more}
    return {"metadata": {"name": "leader", "namespace": "ns", "uid": uid, "labels": {"a": "b"}}, "spec": spec}


FREE = lease()
"""A Lease that its last leader has released."""


@dataclass
class Server:
    """The Lease of a server, in memory; the elector's own clock is its clock too."""

    lease: Lease | None
    fault: Fault = lambda _now, _verb: None
    requests: list[str] = field(default_factory=list)
    version: int = 0
    held: Lease | None = None
    """The Lease before the elector was ended."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Lease:
        await self._arrive("get", resource, namespace)
        assert name == "leader"
        if self.lease is None:
            raise NotFound(404, "NotFound", "no lease")
        return self.lease

    async def create(self, resource: Resource, namespace: str, body: Lease) -> Lease:
        await self._arrive("create", resource, namespace)
        assert body["metadata"] == {"name": "leader", "namespace": "ns"}
        if self.lease is not None:
            raise Conflict(409, "AlreadyExists", "another process was faster")
        return self.put({**body, "metadata": {**body["metadata"], "uid": "created"}})

    async def update(self, resource: Resource, namespace: str, body: Lease) -> Lease:
        await self._arrive("update", resource, namespace)
        if self.lease is None:
            raise NotFound(404, "NotFound", "no lease")
        if body["metadata"] != self.lease["metadata"]:
            raise Conflict(409, "Conflict", "it has changed")
        return self.put(body)

    def put(self, lease: Lease) -> Lease:
        """Store a Lease with a version of its own."""
        self.version += 1
        version = {"resourceVersion": str(self.version)}
        self.lease = {**lease, "metadata": {**lease["metadata"], **version}} if "metadata" in lease else lease
        return self.lease

    async def _arrive(self, verb: str, resource: Resource, namespace: str) -> None:
        assert (resource, namespace) == (LEASES, "ns")
        now = asyncio.get_running_loop().time()
        self.requests.append(f"{verb} {now:g}")
        found = self.fault(now, verb)
        if isinstance(found, Exception):
            raise found
        await asyncio.sleep(found or 0)


@dataclass(frozen=True)
class Seen:
    """What an elector did."""

    valid: list[tuple[int, int]]
    """From which second to which the elector might write."""
    end: str
    """Why it ended by itself."""
    server: Server
    elector: Elector
    seconds: int
    """For so long it was watched; then it was ended."""
    ended_at: float

    @property
    def spec(self) -> Lease:
        """The Lease as it was left."""
        assert self.server.lease is not None
        return cast(Lease, self.server.lease["spec"])


def seen(
    before: Lease | None,
    seconds: int,
    changes: Mapping[int, Lease | None] | None = None,
    fault: Fault | None = None,
    wall: datetime = NOON,
    settings: LeaseSettings | None = None,
) -> Seen:
    """Run an elector against a server on which other programs change the Lease at some seconds."""
    server = Server(None, fault or (lambda _now, _verb: None))
    if before is not None:
        server.put(before)
    return play(_story(server, seconds, changes or {}, wall, settings))


async def _story(
    server: Server,
    seconds: int,
    changes: Mapping[int, Lease | None],
    start: datetime,
    settings: LeaseSettings | None,
) -> Seen:
    clock = asyncio.get_running_loop().time
    name = LeaseName("ns", "leader", "ours")
    elector = Elector(cast(ApiClient, server), name, clock, lambda: start + timedelta(seconds=clock()), settings)
    task, valid = asyncio.create_task(elector.run()), []
    for second in range(seconds):
        await asyncio.sleep(0.5)
        if second in changes:
            found = changes[second]
            server.lease = None
            if found is not None:
                server.put(found)
        valid.append(elector.valid())
        await asyncio.sleep(0.5)
    end = str(task.exception()) if task.done() else ""
    server.held = server.lease
    task.cancel()
    with suppress(asyncio.CancelledError, LeaseLostError):
        await task
    return Seen(_ranges(valid), end, server, elector, seconds, clock())


def _ranges(valid: Sequence[bool]) -> list[tuple[int, int]]:
    """Return from which second to which it is true."""
    edges = [at for at, (old, new) in enumerate(zip([False, *valid], [*valid, False], strict=True)) if old != new]
    return list(zip(edges[::2], edges[1::2], strict=True))


def away(*spans: tuple[float, float], error: Exception | float = 60.0) -> Fault:
    """A server that is away between these times: a request hangs, or fails."""
    return lambda now, _verb: error if any(begin <= now < end for begin, end in spans) else None


DOWN = Unavailable(500, "Internal", "no etcd")
