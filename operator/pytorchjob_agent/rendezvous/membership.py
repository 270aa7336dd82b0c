"""From one round to the next: announce a port, wait for a place, open the round's store, keep its pulse.

The coordinator gives the place; without it the members of the last round agree among themselves, through that round's
store. Which of the two it was makes no difference to the workers.
"""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pytorchjob_agent.contract.messages import Assigned, Done, Heartbeat, Join, Message, Resumed, Stop, Unreachable
from pytorchjob_agent.rendezvous import inbox as orders
from pytorchjob_agent.rendezvous import peers, round_store
from pytorchjob_agent.rendezvous.coordinator_client import Client
from pytorchjob_agent.rendezvous.decide import AWAY_SECONDS
from pytorchjob_agent.rendezvous.inbox import Inbox
from pytorchjob_agent.rendezvous.peers import Pulse
from pytorchjob_agent.system.console import say

_TELL_SECONDS = 15.0
_BY_MEMBERS_SECONDS = 5.0
"""How long members try to agree by themselves although the coordinator answers."""
_LOOK_SECONDS = 0.1
_LINGER_SECONDS = 5.0


class StoppedError(Exception):
    """There is no next round for this agent; `stop` says why."""

    def __init__(self, stop: Stop) -> None:
        """Keep the order."""
        super().__init__(stop.message)
        self.stop = stop


class LeavingError(Exception):
    """This pod has to go."""


class FencedError(Exception):
    """Another agent has this place."""


class PeerError(Exception):
    """The store of the round could not be reached; says which and why."""


class NobodyError(Exception):
    """The coordinator was not reached in time."""


def describe(assigned: Assigned, count: int) -> str:
    """Return a round as people read it in the pod's log; `count` workers are here."""
    first = assigned.first_rank
    return (
        f"round {assigned.round}: node {assigned.rank} of {assigned.size}, ranks {first} to {first + count - 1} of"
        f" {assigned.world_size}, master {assigned.master_address}:{assigned.master_port},"
        f" {assigned.restarts} restarts so far"
    )


class Membership:
    """This agent's place in the job, round by round."""

    def __init__(self, client: Client, address: str, timeout: float) -> None:
        """Start without a round; `timeout` seconds without any word of the coordinator end the first attempt."""
        self.client = client
        self._address, self._timeout = address, timeout
        self.assigned: Assigned | None = None
        self.pulse: Pulse | None = None
        self.store: Any = None
        self._raw: Any = None
        self._server: Any = None
        self._old: Any = None
        self._listener: socket.socket | None = None
        self.on_wanted: Callable[[], None] = lambda: None
        self.leaving: Callable[[], bool] = lambda: False
        self.beat: Callable[[], Heartbeat] = self._plain_beat

    def next_round(self, *told: Message, by_members: bool = False) -> Assigned:
        """Wait for the next round and open or join its store; `told` is said before the request to join."""
        listener = round_store.listen(self._address)
        join = Join(listener.getsockname()[1], orders.ended(self.client.inbox))
        offered = by_members and self._offer(join.port)
        if not offered:
            self.client.stand(*told, join, round=None, done=False)
        try:
            assigned, agreed = self._wait(told, join, offered)
            self._begin(assigned, listener, agreed=agreed)
        except BaseException:
            listener.close()
            raise
        return assigned

    def _wait(self, told: tuple[Message, ...], join: Join, offered: bool) -> tuple[Assigned, bool]:
        """Return the place, and whether the members gave it."""
        started = told_at = time.monotonic()
        while True:
            inbox = self.client.wait(lambda one: self._decided(one), _LOOK_SECONDS)
            self._check(inbox, started)
            if orders.over(inbox):
                self.client.begin(orders.skip)
                self.client.stand(*told, join, round=None, done=False)
                continue
            if inbox.assigned is not None:
                return inbox.assigned, False
            if orders.ended(inbox) != join.round:  # the coordinator wants none of what the members may agree on
                join, offered = replace(join, round=orders.ended(inbox)), False
                self.client.stand(*told, join, round=None, done=False)
            now = time.monotonic()
            if offered and (agreed := self._agree()):
                return agreed, True
            if offered and self.client.away() == 0 and now - started > _BY_MEMBERS_SECONDS:
                offered = False
                self.client.stand(*told, join, round=None, done=False)
            elif not offered and self.client.away() > AWAY_SECONDS and self.assigned is not None:
                offered = self._offer(join.port)
            if now - told_at > _TELL_SECONDS:
                told_at = now
                say(f"waiting for a round: {self._why(inbox)}")

    def _decided(self, inbox: Inbox) -> bool:
        return inbox.assigned is not None or inbox.stop is not None or self.leaving()

    def _check(self, inbox: Inbox, started: float) -> None:
        if inbox.stop is not None:
            raise StoppedError(inbox.stop)
        if inbox.refused is not None and inbox.refused.fenced:
            raise FencedError(inbox.refused.message)
        if self.leaving():
            raise LeavingError("asked to go while waiting for a round")
        if self.client.away() > self._timeout and time.monotonic() - started > self._timeout:
            raise NobodyError(f"no coordinator within {self._timeout:g} s: {self._why(inbox)}")

    def _why(self, inbox: Inbox) -> str:
        if inbox.refused is not None:
            return f"the coordinator refuses this agent: {inbox.refused.message}"
        if self.client.away() > 0:
            return (
                f"the coordinator has not answered for {self.client.away():.0f} s"
                " (is the operator running, may this pod reach its Service?)"
            )
        return inbox.hold or "the coordinator waits for the other members"

    def _offer(self, port: int) -> bool:
        """Offer the others to go on without the coordinator; False where the last round's store is gone."""
        if self.assigned is None or self.store is None or orders.ended(self.client.inbox) != self.assigned.round:
            return False
        try:
            peers.offer(self.store, self.assigned, self._address, port)
        except RuntimeError:
            return False
        return True

    def _agree(self) -> Assigned | None:
        if self.client.away() == 0 and self.client.inbox.assigned is not None:
            return None
        assert self.assigned is not None
        try:
            return peers.agree(self.store, self.assigned)
        except (RuntimeError, ValueError):
            return None

    def _begin(self, assigned: Assigned, listener: socket.socket, *, agreed: bool) -> None:
        self.client.begin(lambda inbox: orders.begin(inbox, assigned.round))
        if self.pulse is not None:
            self.pulse.stop()
            self.pulse = None
        resumed = (Resumed(assigned.round, assigned.restarts, assigned.reason),) if agreed else ()
        self.client.stand(
            *resumed,
            round=assigned.round,
            rank=assigned.rank,
            size=assigned.size,
            restarts=assigned.restarts,
            done=False,
        )
        self.assigned = assigned
        try:
            self._open(assigned, listener, keep_old=agreed)
            self.pulse = Pulse(self._pulse_store(assigned), assigned, self.on_wanted)
        except RuntimeError as error:
            where = f"{assigned.master_address}:{assigned.master_port}"
            self.client.say(Unreachable(assigned.round, where, str(error)[:500]))
            self.store = None
            raise PeerError(f"rank 0's store {where} does not answer: {error}") from error
        self.pulse.start()
        if assigned.neighbour:
            threading.Thread(target=self._try, args=(assigned,), name="neighbour", daemon=True).start()

    def _open(self, assigned: Assigned, listener: socket.socket, *, keep_old: bool) -> None:
        """Open the round's store as rank 0, connect to it as another; the port stays open for a neighbour's try."""
        self._old = self._server if keep_old else None  # the others may still have to read what was agreed on
        if self._listener is not None:
            self._listener.close()
        self._listener, self._server = listener, None
        if assigned.rank == 0:
            self._raw = self._server = round_store.serve(listener)
        else:
            self._raw = round_store.connect(assigned.master_address, assigned.master_port)
        self.store = self._part(self._raw, assigned)
        if assigned.rank == 0:
            peers.prepare(self.store, assigned.size)

    def _pulse_store(self, assigned: Assigned) -> Any:
        """Return a connection of the pulse's own."""
        return self._part(round_store.connect(assigned.master_address, assigned.master_port), assigned)

    @staticmethod
    def _part(store: Any, assigned: Assigned) -> Any:
        return round_store.beside(store, f"pytorchjob/{assigned.round}")

    def _try(self, assigned: Assigned) -> None:
        error = peers.try_neighbour(assigned.neighbour)
        if error is not None and self.assigned is assigned:
            say(f"warning: the peer at {assigned.neighbour} cannot be reached: {error}")
            self.client.say(Unreachable(assigned.round, assigned.neighbour, error))

    def _plain_beat(self) -> Heartbeat:
        """Return a beat of an agent that knows nothing of its workers."""
        return Heartbeat(heard=self.pulse.heard() if self.pulse is not None else ())

    def done(self) -> None:
        """Tell the coordinator that the workers here are done."""
        if self.assigned is not None:
            self.client.stand(Done(self.assigned.round), done=True)

    def linger(self) -> None:
        """Keep the store open, without a coordinator, until the others have read in it that all are done."""
        assigned, deadline = self.assigned, time.monotonic() + _LINGER_SECONDS
        if assigned is None or self.client.away() == 0.0:
            return
        with suppress(RuntimeError):
            peers.bye(self.store, assigned.rank)
            while assigned.rank == 0 and time.monotonic() < deadline and not peers.all_gone(self.store, assigned.size):
                time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Give everything back."""
        if self.pulse is not None:
            self.pulse.stop()
        self.client.close()
        self._server = self._old = self._raw = self.store = None
        if self._listener is not None:
            self._listener.close()
