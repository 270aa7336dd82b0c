"""The members' own heartbeat through the store of the round: who is there, and what to do without the coordinator.

One write and one read a second, to the store that rank 0's agent keeps. It tells the coordinator which peers are alive
though it cannot see them, and this agent whether it is alone.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pytorchjob_agent.contract.messages import HEARTBEAT_SECONDS, Assigned, RoundId
from pytorchjob_agent.system import network

_log = logging.getLogger(__name__)
_WANTED, _GO = "wanted", "go"


class Pulse:
    """One round's heartbeat."""

    def __init__(self, store: Any, assigned: Assigned, on_wanted: Callable[[], None]) -> None:
        """Take a store of its own: its calls may block for seconds while the host is away."""
        self._store, self._assigned = store, assigned
        self._on_wanted = on_wanted
        self._stop = threading.Event()
        self._beats = 0
        self._seen: list[bytes] = []
        self._fresh: dict[int, float] = {}
        self.contact = time.monotonic()
        """When a peer was last heard, or the store that a peer keeps answered."""
        self.wanted: str | None = None
        """Why a member asks for a restart that the coordinator did not order."""
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        """Begin; rank 0 has prepared the keys before."""
        self._thread.start()

    def stop(self) -> None:
        """End, without waiting for a call that blocks."""
        self._stop.set()

    def heard(self) -> tuple[int, ...]:
        """The ranks that were heard in the last two seconds."""
        limit = time.monotonic() - 2 * HEARTBEAT_SECONDS
        return tuple(sorted(rank for rank, at in self._fresh.items() if at > limit))

    def silence(self) -> float:
        """Seconds since any peer was heard; 0 for a round of one."""
        return 0.0 if self._assigned.size == 1 else time.monotonic() - self.contact

    def _run(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            with suppress(RuntimeError):  # torch's DistError and its kin: the host is away, silence() tells
                self._once()

    def _once(self) -> None:
        leads = self._assigned.rank == 0
        if leads:
            self._listen()
        else:
            self._beats += 1
            self._store.set(f"beat/{self._assigned.rank}", str(self._beats))  # waits for no answer
        wanted = self._store.check([_WANTED])
        if not leads:
            self._fresh[0] = self.contact = time.monotonic()
        if wanted and self.wanted is None:
            self.wanted = self._store.get(_WANTED).decode(errors="replace")
            self._on_wanted()

    def _listen(self) -> None:
        """Compare the others' counters with those of a second ago."""
        names = _counters(self._assigned.size)
        values = self._store.multi_get(names) if names else []
        now = time.monotonic()
        for rank, (old, new) in enumerate(zip(self._seen or values, values, strict=True), 1):
            if old != new or not self._seen:
                self._fresh[rank] = self.contact = now
        self._seen = values


def prepare(store: Any, size: int) -> None:
    """Make the counters, so that they can be read all at once."""
    if names := _counters(size):
        store.multi_set(names, ["0"] * len(names))


def _counters(size: int) -> list[str]:
    """Return the keys of all ranks but 0: its beat is that its store answers."""
    return [f"beat/{rank}" for rank in range(1, size)]


def want(store: Any, reason: str) -> None:
    """Ask the other members for a restart."""
    store.set(_WANTED, reason[:1024])


def done(store: Any, rank: int) -> None:
    """Tell the others that the workers here are done."""
    store.set(f"done/{rank}", "1")


def all_done(store: Any, size: int) -> bool:
    """Whether everybody's are."""
    return bool(store.check([f"done/{rank}" for rank in range(size)]))


def bye(store: Any, rank: int) -> None:
    """Tell the store's host that it is no longer needed here."""
    store.set(f"bye/{rank}", "1")


def all_gone(store: Any, size: int) -> bool:
    """Whether nobody else needs the store."""
    return bool(store.check([f"bye/{rank}" for rank in range(1, size)]))


def offer(store: Any, old: Assigned, address: str, port: int) -> None:
    """Tell the others that we wait for a round without the coordinator."""
    store.set(f"again/{old.rank}", json.dumps([address, port]))


def agree(store: Any, old: Assigned) -> Assigned | None:
    """Return the round that the members agreed on, once all of them have offered; rank 0 opens it."""
    if not store.check([_GO]):
        if old.rank or not store.check([f"again/{rank}" for rank in range(old.size)]):
            return None
        address, port = json.loads(store.get("again/0"))
        store.set(_GO, json.dumps([address, port]))
    address, port = json.loads(store.get(_GO))
    return Assigned(
        round=RoundId(old.round.term, old.round.number, old.round.attempt + 1),
        rank=old.rank,
        size=old.size,
        first_rank=old.first_rank,
        world_size=old.world_size,
        master_address=str(address),
        master_port=int(port),
        restarts=old.restarts + 1,
        reason="agreed on without the coordinator",
    )


def try_neighbour(where: str) -> str | None:
    """Open and close a connection to host:port; returns what went wrong."""
    host, _, port = where.rpartition(":")
    try:
        network.connect(host.strip("[]"), int(port))
    except OSError as error:
        return f"{type(error).__name__}: {error}"[:500]
    return None
