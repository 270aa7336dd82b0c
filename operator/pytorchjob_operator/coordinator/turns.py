"""Shares the coordinator's thread among connections: a job that sends much delays itself, and no other one for long.

Connections only store what arrives. The work on it (TLS, JSON, decisions, answers) is done here, in small units: job by
job, and address by address for connections without an accepted hello. After a few units the loop reads again.
"""

import asyncio
from typing import Protocol

from pytorchjob_operator.coordinator.fairness import FairQueue

UNIT = 4 * 1024
"""The cost after which a connection's unit of work ends, in bytes."""
_MEMBERS_COST = 8 * UNIT
"""The cost of authenticated connections in one turn: a millisecond or two."""
_HANDSHAKES = 4
"""The units of unauthenticated connections in one turn. A unit is a step of a handshake: half a millisecond at most."""


class Worker(Protocol):
    """A connection with something to do."""

    def work(self) -> int:
        """Do one unit of work; return its cost, in bytes."""


class Turns:
    """The queues of connections that have work. A connection queues again itself if a unit was not enough."""

    def __init__(self) -> None:
        """Start without work."""
        self._members: FairQueue[Worker] = FairQueue()
        self._continued: FairQueue[Worker] = FairQueue()
        self._begun: FairQueue[Worker] = FairQueue()
        self._scheduled = False

    def add_member(self, worker: Worker, namespace: str, job: str) -> None:
        """Queue a connection of a job."""
        self._members.add(worker, namespace, job)
        self._schedule()

    def add_unauthenticated(self, worker: Worker, address: str, *, begun: bool) -> None:
        """Queue an unauthenticated connection; `begun`: work was done for it before, which should not be in vain."""
        (self._continued if begun else self._begun).add(worker, address)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        try:
            cost = 0
            while self._members and cost < _MEMBERS_COST:
                cost += self._members.take().work()
            for number in range(_HANDSHAKES):
                self._shake_hands(continued=number > 0)
        finally:
            if self._members or self._continued or self._begun:
                self._schedule()

    def _shake_hands(self, *, continued: bool) -> None:
        """Do a unit for an unauthenticated connection; most units continue what was begun, so that it ends soon."""
        first, second = (self._continued, self._begun) if continued else (self._begun, self._continued)
        if queue := first or second:
            queue.take().work()
