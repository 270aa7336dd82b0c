"""Leader election: at most one process at a time may write, decided by a Lease and a monotonic clock.

The leader stops writing (`valid()` is False) well before another process may take over, whatever the network does: its
lease counts from before the request that renewed it. It keeps trying, and writes again if the Lease is still its own,
so that an API server outage ends no process. Only another holder ends the process. This module writes only the Lease.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pytorchjob_operator.errors import ApiError, Conflict, NotFound, OperatorError
from pytorchjob_operator.kube.client import ApiClient, Object
from pytorchjob_operator.kube.resource import LEASES

_log = logging.getLogger(__name__)
_NEVER = float("-inf")


class LeaseLostError(OperatorError):
    """Another process has taken the lead: this process must end at once, with an error."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Durations in seconds; `deadline + request < duration` leaves room for a write that is in flight."""

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

    `clock` is monotonic and decides; `wall` only fills the times that people read.
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
        self._valid_until = _NEVER
        self._leading = False
        self.term = 0
        """Grows with each change of leadership; the messages of a later leader have a higher term."""
        self.acquired = asyncio.Event()

    def valid(self) -> bool:
        """True if this process may write now; check it before each write."""
        return self._clock() < self._valid_until

    async def run(self) -> None:
        """Acquire the Lease, set `acquired` and renew it; release it when cancelled.

        Raises LeaseLostError once another process holds it.
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
        return min(self._settings.period, self._valid_until - self._clock())

    async def _attempt(self) -> None:
        started = self._clock()
        limit = self._settings.request
        if self.valid():
            limit = min(limit, self._valid_until - started)
        try:
            async with asyncio.timeout(limit):
                await self._compete(started)
        except Conflict:
            self._lease = None
        except (ApiError, TimeoutError) as error:
            self._lease = None
            held = "" if self.valid() or not self._leading else "; the operator writes nothing until it is renewed"
            _log.warning("lease %s: %s%s", self._name.name, str(error) or "no response in time", held)

    async def _compete(self, started: float) -> None:
        lease = self._lease or await self._read()
        if lease is None:
            body = self._renewed({"metadata": {"name": self._name.name, "namespace": self._name.namespace}})
            self._won(await self._client.create(LEASES, self._name.namespace, body), started)
        elif self._free(lease):
            body = self._renewed(lease)
            self._won(await self._client.update(LEASES, self._name.namespace, body), started)
        else:
            self._lease = None  # another process' Lease is read again each time

    async def _read(self) -> Object | None:
        try:
            return await self._client.get(LEASES, self._name.namespace, self._name.name)
        except NotFound:
            return None

    def _free(self, lease: Object) -> bool:
        spec: dict[str, Any] = lease.get("spec") or {}
        holder = spec.get("holderIdentity")
        if holder == self._name.identity:
            return True
        if self._leading:
            self._valid_until = _NEVER
            raise LeaseLostError(f"lease {self._name.name}: the leader is now {holder or 'no process'}")
        if not holder:
            return True
        return self._expired(spec)

    def _expired(self, spec: dict[str, Any]) -> bool:
        """True if the other holder has not renewed for a whole lease duration, measured by this process' clock."""
        renewal = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if renewal != self._rival:
            self._rival, self._rival_since = renewal, self._clock()
        duration = float(spec.get("leaseDurationSeconds") or self._settings.duration)
        return self._clock() - self._rival_since >= duration

    def _renewed(self, lease: Object) -> Object:
        spec = dict(lease.get("spec") or {})
        now = _micro_time(self._wall())
        if not self._leading:
            spec["leaseTransitions"] = max(self.term, int(spec.get("leaseTransitions") or 0)) + 1
            spec["acquireTime"] = now
        else:
            spec["leaseTransitions"] = self.term
        spec["holderIdentity"] = self._name.identity
        spec["leaseDurationSeconds"] = max(1, round(self._settings.duration))
        spec["renewTime"] = now
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": lease["metadata"], "spec": spec}

    def _won(self, lease: Object, started: float) -> None:
        self._lease = lease
        self._valid_until = started + self._settings.deadline
        if self._leading:
            return
        self._leading = True
        self.term = int(lease["spec"]["leaseTransitions"])
        self.acquired.set()
        _log.info("lease %s: leading, term %d", self._name.name, self.term)

    async def _release(self) -> None:
        """Let the successor start at once; if the request fails, it starts after the lease duration."""
        self._valid_until = _NEVER
        if not self._leading or self._lease is None:
            return
        spec = {**self._lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(self._settings.request):
                await self._client.update(LEASES, self._name.namespace, {**self._lease, "spec": spec})
        except (ApiError, TimeoutError) as error:
            _log.info("lease %s: not released: %s", self._name.name, str(error) or "no response in time")


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
