"""When an elector may write, second by second, and which requests it sends for that."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from pytorchjob_operator.errors import Conflict, NotFound, Unavailable
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.lease import Elector, LeaseLostError, LeaseName
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
        self.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self.version)}}
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
) -> Seen:
    """Run an elector against a server on which other programs change the Lease at some seconds."""
    server = Server(None, fault or (lambda _now, _verb: None))
    if before is not None:
        server.put(before)
    return play(_story(server, seconds, changes or {}, wall))


async def _story(server: Server, seconds: int, changes: Mapping[int, Lease | None], start: datetime) -> Seen:
    clock = asyncio.get_running_loop().time
    name = LeaseName("ns", "leader", "ours")
    elector = Elector(cast(ApiClient, server), name, clock, lambda: start + timedelta(seconds=clock()))
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


@pytest.mark.parametrize(
    ("before", "fault", "valid"),
    [
        pytest.param(FREE, None, [(0, 60)], id="a free Lease: at once, for as long as it is renewed"),
        pytest.param(None, None, [(16, 60)], id="no Lease: after a lease duration"),
        pytest.param(lease("dead", 15), None, [(16, 60)], id="a dead leader: after a lease duration"),
        pytest.param(lease("dead", 30), None, [(30, 60)], id="a dead leader with a longer lease: after that"),
        pytest.param(lease("dead", 3600), None, [], id="a dead leader with an absurd lease: not for a minute"),
        pytest.param(lease("dead", True), None, [(16, 60)], id="a truth value is no duration"),
        pytest.param(FREE, away((5, 9)), [(0, 60)], id="a short outage costs nothing"),
        pytest.param(FREE, away((5, 20)), [(0, 14), (21, 60)], id="a server that hangs: ten seconds after a renewal"),
        pytest.param(FREE, away((5, 20), error=DOWN), [(0, 14), (20, 60)], id="a server that fails: the same"),
        pytest.param(FREE, away((0, 20)), [(20, 60)], id="a server that hangs at first"),
        pytest.param(FREE, lambda *_: 1.4, [(3, 60)], id="slow answers, in time"),
        pytest.param(FREE, lambda *_: 3.1, [], id="slow answers, too late: none counts"),
        pytest.param(FREE, lambda *_: ValueError("a bug"), [], id="a bug does not end it"),
    ],
)
def test_when_it_may_write(before: Lease | None, fault: Fault | None, valid: list[tuple[int, int]]) -> None:
    found = seen(before, 60, fault=fault)
    assert (found.valid, found.end) == (valid, "")


def test_a_lease_of_more_than_a_minute_counts_as_one_of_a_minute() -> None:
    assert seen(lease("dead", 3600), 80).valid == [(60, 80)]


@pytest.mark.parametrize(
    ("before", "fault", "requests"),
    [
        pytest.param(FREE, None, "get 0, update 0, update 2, update 4, update 6", id="one for each renewal"),
        pytest.param(None, None, "get 0, create 0, update 2, update 4, update 6", id="it creates a Lease once"),
        pytest.param(lease("other", 15), None, "get 0, get 2, get 4, get 6", id="another process' Lease is read"),
        pytest.param(
            FREE, away((2, 5), error=DOWN), "get 0, update 0, update 2, get 4, get 6, update 6", id="after a failure"
        ),
        pytest.param(FREE, away((2, 5)), "get 0, update 0, update 2, get 7, update 7", id="after one that hangs"),
    ],
)
def test_which_requests_it_sends(before: Lease | None, fault: Fault | None, requests: str) -> None:
    assert sent(seen(before, 8, fault=fault)) == requests


def sent(found: Seen) -> str:
    """Return the requests, without those at its end."""
    return ", ".join(request for request in found.server.requests if not request.endswith(f" {found.seconds}"))


@pytest.mark.parametrize(
    ("hangs", "fails", "requests"),
    [
        pytest.param((8, 60), (2, 8), "update 2, get 4, get 6, get 8, get 12, get 17", id="a request ends with it"),
        pytest.param((2, 3), (3, 14), "update 2, get 7, get 9, get 10, get 12, get 14", id="the next one begins then"),
    ],
)
def test_the_requests_around_the_fall_of_the_fence(
    hangs: tuple[int, int], fails: tuple[int, int], requests: str
) -> None:
    slow, down = away(hangs), away(fails, error=DOWN)
    found = seen(FREE, 20, fault=lambda now, verb: slow(now, verb) or down(now, verb))
    assert sent(found).startswith(f"get 0, update 0, {requests}")


@pytest.mark.parametrize(
    ("change", "valid", "end"),
    [
        pytest.param(lease("thief"), [(0, 6)], "the leader is now thief", id="another process holds it"),
        pytest.param(lease(""), [(0, 6)], "the leader is now no process", id="no process holds it"),
        pytest.param(None, [(0, 6)], "it was deleted, and another process may create it", id="it was deleted"),
        pytest.param(lease("ours", uid="new"), [(0, 6)], "it was deleted and created again", id="it is another one"),
        pytest.param(lease("ours"), [(0, 30)], "", id="it has changed, but is still its own"),
    ],
)
@pytest.mark.parametrize("late", [False, True], ids=["it renews", "it comes back after an outage"])
def test_what_becomes_of_a_leader_when_its_lease_changes(
    change: Lease | None, valid: list[tuple[int, int]], end: str, late: bool
) -> None:
    found = seen(FREE, 30, {4: change}, away((4, 21), error=DOWN) if late else None)
    assert found.end == (f"lease leader: {end}" if end else "")
    if not late:
        assert found.valid == valid
    assert bool(found.valid[1:]) is (late and not end)


@pytest.mark.parametrize(
    ("before", "term"),
    [
        pytest.param(FREE, NOW, id="the time"),
        pytest.param(lease(transitions=NOW), NOW + 1, id="one more than the last one"),
        pytest.param(lease(transitions=NOW + 366 * 24 * 3600), NOW + 366 * 24 * 3600 + 1, id="a clock was wrong"),
        pytest.param(lease(transitions=NOW + 366 * 24 * 3600 + 1), NOW, id="what no leader wrote is ignored"),
        pytest.param(lease(transitions=True), NOW, id="a truth value is ignored"),
        pytest.param(lease(transitions="9" * 12), NOW, id="a text is ignored"),
        pytest.param(lease(transitions=float(NOW + 5)), NOW + 6, id="a fraction is rounded down"),
        pytest.param(lease(transitions=2**63), NOW, id="a number without bounds is ignored"),
    ],
)
def test_the_term(before: Lease, term: int) -> None:
    found = seen(before, 3)
    assert (found.elector.term, found.spec["leaseTransitions"]) == (term, term)


def test_a_term_that_the_server_refuses_is_written_as_the_greatest_that_it_takes() -> None:
    wall = datetime(2037, 12, 1, tzinfo=UTC)
    found = seen(lease(transitions=2**31 + 5), 3, wall=wall)
    assert (found.elector.term, found.spec["leaseTransitions"]) == (2**31 + 6, 2**31 - 1)


def test_the_term_of_a_lease_that_is_gone_is_not_repeated() -> None:
    found = seen(lease("other", 15, NOW + 50), 40, {3: None})
    assert found.elector.term == NOW + 51


def test_what_is_written_in_the_lease() -> None:
    found = seen(lease(more="kept"), 5)
    assert found.server.held == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader", "namespace": "ns", "uid": "first", "labels": {"a": "b"}, "resourceVersion": "4"},
        "spec": {
            "holderIdentity": "ours",
            "leaseDurationSeconds": 15,
            "leaseTransitions": NOW,
            "acquireTime": "2026-01-01T12:00:00.000000Z",
            "renewTime": "2026-01-01T12:00:04.000000Z",
            "more": "kept",
        },
    }


@pytest.mark.parametrize(
    ("before", "fault", "after"),
    [
        pytest.param(FREE, None, ("", 1), id="a leader: the next one starts at once"),
        pytest.param(lease("other", 15), None, ("other", 15), id="no leader: nothing"),
        pytest.param(None, None, ("ours", 15), id="not a leader yet: nothing"),
        pytest.param(FREE, away((5, 9), error=DOWN), ("ours", 15), id="a leader that cannot reach it: nothing"),
    ],
)
def test_what_it_leaves_behind(before: Lease | None, fault: Fault | None, after: tuple[str, int]) -> None:
    found = seen(before, 5, fault=fault)
    assert (found.spec["holderIdentity"], found.spec["leaseDurationSeconds"]) == after
    assert found.elector.valid() is False


def test_a_server_that_hangs_delays_the_end_of_a_leader_by_one_request() -> None:
    assert seen(FREE, 5, fault=away((5, 60))).ended_at == 8


def test_a_reply_that_is_no_lease_is_no_lease() -> None:
    found = seen({"metadata": {}}, 3, {0: {"metadata": {}, "kind": "Status"}})
    assert found.valid == []
