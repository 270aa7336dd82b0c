"""Leader election: at most one process at a time may write, decided by a Lease and a monotonic clock.

The leader stops writing (`valid()` is False) well before another process may take over, whatever the network does: its
lease counts from before the request that renewed it. It keeps trying, and writes again if the Lease is still its own,
so that an API server outage ends no process. Another holder ends the process, and so does a Lease that is gone.

A term is never repeated, whatever is deleted: it is the time of the takeover, and at least one more than the last term
that the Lease shows or this process has seen. A process that creates the Lease waits for a whole lease duration before
it acts, because a leader whose Lease was deleted may still write for that long. This module writes only the Lease.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from pytorchjob_operator.errors import ApiError, Conflict, NotFound, OperatorError, Unavailable
from pytorchjob_operator.kube.client import ApiClient, Object
from pytorchjob_operator.kube.fence import Fence
from pytorchjob_operator.kube.resource import LEASES

_log = logging.getLogger(__name__)
_RELEASED_SECONDS = 1
"""The duration in a Lease that its leader has released; a Lease that only lost its holder has another."""
_MOST_SECONDS = 60.0
"""The longest lease duration of another process that is honoured: a Lease can be edited."""
_MAX_TRANSITIONS = 2**31 - 1
"""The API server refuses greater numbers in `leaseTransitions`."""
_PLAUSIBLE_SECONDS = 366 * 24 * 3600
"""A term in the Lease that is so much later than now is no term of a leader."""


class LeaseLostError(OperatorError):
    """Another process may have taken the lead: this process must end at once, with an error."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Durations in seconds.

    `duration - deadline` is the time for a write that has left before the deadline to reach the server. The server
    ends it by the deadline that the write carries (`ApiClient`), so the margin covers the way there and the drift of
    two clocks.
    """

    duration: float = 15.0
    deadline: float = 10.0
    period: float = 2.0
    request: float = 3.0


@dataclass(frozen=True, slots=True)
class LeaseName:
    """The Lease, and the identity of this process in it; the identity must differ in each process."""

    namespace: str
    name: str
    identity: str


class Elector:
    """Competes for one Lease. It needs a client of its own: its requests must not wait behind others.

    `clock` is monotonic and decides; `wall` fills the times that people read, and begins the terms.
    """

    def __init__(
        self,
        client: ApiClient,
        lease: LeaseName,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
        settings: LeaseSettings | None = None,
    ) -> None:
        self._client = client
        self._name = lease
        self._clock = clock
        self._wall = wall
        self._settings = settings or LeaseSettings()
        self._lease: Object | None = None
        """The Lease as the server last returned it; None means that it must be read."""
        self._rival: tuple[object, ...] | None = None
        self._rival_since = 0.0
        self._settled: str | None = None
        """The uid of the Lease whose last leader is known to write no more."""
        self._unsettled: tuple[str | None, float] = (None, 0.0)
        """The uid of a Lease that this process holds, but whose past it does not know, and since when."""
        self._leading = False
        self._highest = 0
        """The highest term of another process that this process has seen."""
        self.fence = Fence(clock)
        self.term = 0
        """Grows with each change of leadership; the messages of a later leader have a higher term."""
        self.acquired = asyncio.Event()

    def valid(self) -> bool:
        """True if this process may write now; the client checks it again when a request leaves."""
        return self.fence.remaining() > 0.0

    async def run(self) -> None:
        """Acquire the Lease, set `acquired` and renew it; release it when cancelled.

        Raises LeaseLostError once another process holds it, or it is gone.
        """
        try:
            while True:
                await self._attempt()
                await asyncio.sleep(self._pause())
        finally:
            await self._release()

    def _pause(self) -> float:
        if not self.valid():
            return self._settings.period
        return min(self._settings.period, self.fence.remaining())

    async def _attempt(self) -> None:
        limit = self._settings.request
        if self.valid():
            limit = min(limit, self.fence.remaining())
        try:
            async with asyncio.timeout(limit):
                await self._compete_twice()
        except LeaseLostError:
            raise
        except (ApiError, TimeoutError) as error:
            self._lease = None
            held = "" if self.valid() or not self._leading else "; the operator writes nothing until it is renewed"
            _log.warning("lease %s: %s%s", self._name.name, str(error) or "no response in time", held)
        except Exception:  # top of the loop: whatever the Lease contains, it may not end the elector
            self._lease = None
            _log.exception("lease %s: failed unexpectedly", self._name.name)

    async def _compete_twice(self) -> None:
        """Compete; if the Lease changed meanwhile, read it at once: it may be gone, or another process' Lease."""
        try:
            await self._compete(self._clock())
        except Conflict:
            self._lease = None
            with suppress(Conflict):
                await self._compete(self._clock())

    async def _compete(self, started: float) -> None:
        lease = self._lease or await self._read()
        if lease is None:
            self._deleted()
            body = self._renewed({"metadata": {"name": self._name.name, "namespace": self._name.namespace}})
            self._held(await self._client.create(LEASES, self._name.namespace, body), started)
        elif self._free(lease):
            self._held(await self._update(self._renewed(lease)), started)
        else:
            self._lease = None  # another process' Lease is read again each time

    async def _read(self) -> Object | None:
        try:
            return _checked(await self._client.get(LEASES, self._name.namespace, self._name.name))
        except NotFound:
            return None

    async def _update(self, body: Object) -> Object:
        """Write the Lease; a Lease that was deleted meanwhile is read again, and then missed."""
        try:
            return await self._client.update(LEASES, self._name.namespace, body)
        except NotFound as error:
            raise Conflict(error.status, error.reason, error.message) from error

    def _deleted(self) -> None:
        if self._leading:
            self._lose("it was deleted, and another process may create it")

    def _free(self, lease: Object) -> bool:
        spec = _spec(lease)
        holder = spec.get("holderIdentity") or ""
        if self._leading and holder != self._name.identity:
            self._lose(f"the leader is now {holder or 'no process'}")
        if self._leading and _uid(lease) != self._settled:
            self._lose("it was deleted and created again")
        if holder == self._name.identity:
            return True
        self._note_term(spec)
        if _released(spec) or self._expired(spec):
            self._settled = _uid(lease)
            return True
        return False

    def _lose(self, reason: str) -> NoReturn:
        self._lease = None
        self.fence.fall()
        raise LeaseLostError(f"lease {self._name.name}: {reason}")

    def _expired(self, spec: Object) -> bool:
        """True if the holder has not renewed for a whole lease duration, measured by this process' clock."""
        renewal = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if renewal != self._rival:
            self._rival, self._rival_since = renewal, self._clock()
        duration = min(_number(spec.get("leaseDurationSeconds")), _MOST_SECONDS)
        return self._clock() - self._rival_since >= max(duration, self._settings.duration)

    def _note_term(self, spec: Object) -> None:
        """Remember the term in the Lease; a number that no leader can have written is ignored."""
        term = int(_number(spec.get("leaseTransitions")))
        if term > self._wall().timestamp() + _PLAUSIBLE_SECONDS:
            _log.warning("lease %s: leaseTransitions %d is not a term of a leader; ignored", self._name.name, term)
        else:
            self._highest = max(self._highest, term)

    def _renewed(self, lease: Object) -> Object:
        spec = dict(_spec(lease))
        now = self._wall()
        if not self._leading:
            self.term = max(int(now.timestamp()), self._highest + 1)
            spec["acquireTime"] = _micro_time(now)
        spec["leaseTransitions"] = min(self.term, _MAX_TRANSITIONS)
        spec["holderIdentity"] = self._name.identity
        spec["leaseDurationSeconds"] = max(1, round(self._settings.duration))
        spec["renewTime"] = _micro_time(now)
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": lease["metadata"], "spec": spec}

    def _held(self, lease: Object, started: float) -> None:
        """Process a Lease that this process now holds: lead, or wait until no earlier leader can write any more."""
        self._lease = _checked(lease)
        if not self._leading:
            if not self._may_lead(_uid(lease)):
                return
            self._settled, self._leading = _uid(lease), True
        self.fence.extend(started + self._settings.deadline)
        if not self.acquired.is_set():
            self.acquired.set()
            _log.info("lease %s: leading, term %d", self._name.name, self.term)

    def _may_lead(self, uid: str) -> bool:
        """False during the first lease duration of a Lease whose past is not known, because it was just created."""
        if uid == self._settled:
            return True
        if uid != self._unsettled[0]:
            self._unsettled = (uid, self._clock())
            _log.info("lease %s: created; leading in %.0f s", self._name.name, self._settings.duration)
        return self._clock() - self._unsettled[1] >= self._settings.duration

    async def _release(self) -> None:
        """Let the successor start at once; if the request fails, it starts after the lease duration."""
        self.fence.fall()
        if not self._leading or self._lease is None:
            return
        spec = {**self._lease["spec"], "holderIdentity": "", "leaseDurationSeconds": _RELEASED_SECONDS}
        try:
            async with asyncio.timeout(self._settings.request):
                await self._client.update(LEASES, self._name.namespace, {**self._lease, "spec": spec})
        except (ApiError, TimeoutError) as error:
            _log.info("lease %s: not released: %s", self._name.name, str(error) or "no response in time")


def _checked(lease: Object) -> Object:
    """Return a Lease that has the metadata by which it can be updated; the rest of it may be anything."""
    if not isinstance(lease.get("metadata"), dict):
        raise Unavailable(0, "BadReply", "the server's response is not a Lease")
    return lease


def _spec(lease: Object) -> dict[str, Any]:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}


def _uid(lease: Object) -> str:
    return str(lease["metadata"].get("uid"))


def _released(spec: Object) -> bool:
    return spec.get("holderIdentity") == "" and spec.get("leaseDurationSeconds") == _RELEASED_SECONDS


def _number(value: object) -> float:
    """Return a positive number, or 0 for anything else: people and programs can edit a Lease."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**63 else 0.0


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
