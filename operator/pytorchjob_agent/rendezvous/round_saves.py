"""The checkpoints in memory of one agent, from round to round: what it offers, what it restores, what it watches."""

import os
import socket
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

from pytorchjob_agent.contract.checkpoint_rules import CheckpointRules
from pytorchjob_agent.contract.environment import NODE
from pytorchjob_agent.contract.held_saves import Choice, DurableParts, HeldSave
from pytorchjob_agent.contract.messages import Assigned
from pytorchjob_agent.rendezvous.published import Awaited, Published
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.saves import placing
from pytorchjob_agent.saves.copies import SaveServer
from pytorchjob_agent.saves.drain import RoundOfDrains
from pytorchjob_agent.saves.durable_tier import DurableTier
from pytorchjob_agent.saves.held import FullError, HeldSaves
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.peers import Peer, shares_directory, targets
from pytorchjob_agent.saves.recognition import Local, SeenFile
from pytorchjob_agent.saves.restore import Fetching, MissingError, Sources
from pytorchjob_agent.saves.round_keys import RoundKeys
from pytorchjob_agent.saves.taking import Writer
from pytorchjob_agent.saves.watcher import RoundOfSaves, SaveWatcher
from pytorchjob_agent.system.console import say

_SETTLE_SECONDS = 10.0
"""How long a pod that leaves waits for the copy of its last save to peers, and then to durable storage."""
_DRAINED = "durable"
"""The key under which rank 0 announces what is copied to durable storage."""
_PUBLISHED_SECONDS = 30.0
"""After this time the others count as agents without checkpoints in memory, such as those of an earlier version. It is
longer than for caches, because no worker waits for it."""


class RoundSaves(Protocol):
    """What the membership and the loop call."""

    @property
    def problem(self) -> str:
        """Why the last checkpoint is not kept or not copied; empty without a problem."""

    def over(self, *, clean: bool) -> None:
        """All workers have ended; `clean`: with success."""

    def settled(self, *, ended: bool) -> bool:
        """Return whether a pod that leaves has copied its last save; `ended`: its workers have ended with success."""

    def finished(self) -> bool:
        """Return whether the last save of workers that ended with success is durable, or has had its time."""

    def leave(self, by: float) -> None:
        """The agent ends: wait until the newest save is durable, up to this monotonic time and ten seconds at most."""

    def held(self) -> tuple[HeldSave, ...]:
        """Return what this agent holds."""

    def durable(self) -> tuple[HeldSave, ...]:
        """Return what this agent finds whole on durable storage."""

    def parts(self) -> tuple[DurableParts, ...]:
        """Return the saves of which `durable` found only some parts."""

    def open(self, assigned: Assigned, connect: Callable[[], SignedStore], goes_on: Callable[[], bool]) -> None:
        """A round begins: restore the checkpoint that the coordinator chose. `goes_on`: the round has not ended."""

    def begin(self, pids: Collection[int]) -> None:
        """The workers of the round have started."""

    def close(self) -> None:
        """The agent ends."""


class NoSaves:
    """Without spec.agent.checkpoint: nothing is held and nothing restored."""

    def __init__(self, problem: str = "") -> None:
        """Take the reason, if the job wants checkpoints."""
        self._problem = problem

    @property
    def problem(self) -> str:
        """The reason, if the job wants checkpoints."""
        return self._problem

    def over(self, *, clean: bool) -> None:
        """Do nothing."""

    def settled(self, *, ended: bool) -> bool:
        """Return True: there is nothing to copy."""
        return True

    def finished(self) -> bool:
        """Return True: there is nothing to copy."""
        return True

    def leave(self, by: float) -> None:
        """Do nothing."""

    def held(self) -> tuple[HeldSave, ...]:
        """Return nothing."""
        return ()

    def durable(self) -> tuple[HeldSave, ...]:
        """Return nothing."""
        return ()

    def parts(self) -> tuple[DurableParts, ...]:
        """Return nothing."""
        return ()

    def open(self, assigned: Assigned, connect: Callable[[], SignedStore], goes_on: Callable[[], bool]) -> None:
        """Do nothing."""

    def begin(self, pids: Collection[int]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class MemorySaves:
    """The saves of an agent whose job has spec.agent.checkpoint."""

    def __init__(self, rules: CheckpointRules, job: str, address: str, nproc: int) -> None:
        """Open the directory and the port for peers. Raises OSError."""
        self._rules, self._job, self._address, self._nproc = rules, job, address, nproc
        self._held = HeldSaves(Path(rules.directory), job, rules.memory)
        self._server = SaveServer(self._held, address)
        self._watcher = SaveWatcher(self._held)
        self._tier = None if rules.durable is None else DurableTier(self._held, rules.durable, job)
        self._drains: RoundOfDrains | None = None
        self._watcher.on_full = self._copy_loose
        self._node = os.environ.get(NODE) or socket.gethostname()
        self._placed: list[SeenFile] = []
        self._round: RoundOfSaves | None = None
        self._shared = False
        self._settle_by: float | None = None

    @property
    def problem(self) -> str:
        """Why the last checkpoint is not kept, not copied or not restored."""
        return self._watcher.problem or ("" if self._tier is None else self._tier.problem)

    def over(self, *, clean: bool) -> None:
        """Take the last save of the round."""
        self._watcher.end(clean=clean)

    def settled(self, *, ended: bool) -> bool:
        """Return whether the last save is copied, or has had its time."""
        now = time.monotonic()
        self._settle_by = now + _SETTLE_SECONDS if self._settle_by is None else self._settle_by
        return now > self._settle_by or self._watcher.settle(ended=ended)

    def finished(self) -> bool:
        """Return whether the last save is durable, or has had its time: the job succeeds only then."""
        if self._tier is None:
            return True
        now = time.monotonic()
        self._settle_by = now + _SETTLE_SECONDS if self._settle_by is None else self._settle_by
        self._watcher.copy_no_more()
        taken = self._watcher.settle(ended=True) or now > self._settle_by
        return taken and self._tier.drain.finish()

    def leave(self, by: float) -> None:
        """Wait until the newest save is durable."""
        if self._tier is not None:
            self._tier.drain.leave(min(by - time.monotonic(), _SETTLE_SECONDS))

    def held(self) -> tuple[HeldSave, ...]:
        """Return what this agent offers."""
        return () if self._shared else self._held.list()

    def durable(self) -> tuple[HeldSave, ...]:
        """Return what this agent finds whole on durable storage."""
        return () if self._tier is None or self._shared else self._tier.offered()

    def parts(self) -> tuple[DurableParts, ...]:
        """Return the saves of which `durable` found only some parts."""
        return () if self._tier is None or self._shared else self._tier.parts()

    def open(self, assigned: Assigned, connect: Callable[[], SignedStore], goes_on: Callable[[], bool]) -> None:
        """Publish what is held, and restore the chosen save. A failure is printed; the workers start all the same."""
        self._server.use(RoundKeys.of(assigned))
        if self._tier is not None:
            self._tier.drain.stop()
        self._placed, self._round, self._drains, self._settle_by = [], None, None, None
        if not assigned.secret:
            self._watcher.report("no checkpoint is copied: this operator gives rounds no secret")
            return
        where = self._rules.directory
        try:
            store = connect()
            own = self._own(assigned)
            _published(store).write(own.to_json())
        except (OSError, RuntimeError) as error:
            self._watcher.report(f"no checkpoint is copied in this round: {error}")
            return
        restored = True
        try:
            self._restore(assigned, lambda: _read_peers(store), goes_on)
            if self._tier is not None:
                _published(store).write(self._own(assigned).to_json())  # for members without the storage
        except (MissingError, FullError, OSError, RuntimeError) as error:
            restored = False
            self._watcher.report(f"CheckpointNotRestored: {error}; the workers start with what is in {where}")
        if restored or assigned.rank == 0:  # the saves of other ranks count only upon the same base
            self._round = self._make_round(assigned, store, own)
            self._drains = _drains(assigned, connect, restored=restored)

    def begin(self, pids: Collection[int]) -> None:
        """Watch the directory while these workers run."""
        if self._round is None or self._shared:
            return
        try:
            self._watcher.begin(self._round, pids, self._placed)
            if self._tier is not None and self._drains is not None:
                self._tier.drain.begin(self._drains)
        except OSError as error:
            self._watcher.report(f"no checkpoint is kept: {error}")

    def _copy_loose(self, manifest: Manifest) -> None:
        """Memory has no room to hold a save: only the durable directory gets it."""
        if self._tier is not None:
            self._tier.drain.loose = manifest

    def close(self) -> None:
        """Close the port, and end the threads."""
        self._watcher.close()
        self._server.close()
        if self._tier is not None:
            self._tier.drain.close()

    def _own(self, assigned: Assigned) -> Peer:
        place = (assigned.rank, self._address, self._server.port, self._node)
        return Peer(*place, self._held.identity(), self._held.list(), assigned.zone)

    def _restore(self, assigned: Assigned, peers: Callable[[], Sequence[Peer]], goes_on: Callable[[], bool]) -> None:
        choice = Choice.from_text(assigned.checkpoint)
        if choice is None or self._shared:
            return
        started = time.monotonic()
        sources = Sources(RoundKeys.of(assigned), peers, assigned.size - 1, self._tier, goes_on)
        parts = Fetching(self._held, choice, sources).all()
        self._placed, aside = placing.place(self._held, parts)
        self._held.drop_before(choice)
        size = self._held.reserve = sum(part.size for part in parts)  # the next save is as large as the last
        self._watcher.make_room()
        say(f"checkpoint {choice.to_text()}: {size} bytes are in place after {time.monotonic() - started:.2f} s")
        if aside:
            say(f"moved aside, because it is not whole or not held by enough members: {', '.join(aside)[:500]}")

    def _make_round(self, assigned: Assigned, store: SignedStore, own: Peer) -> RoundOfSaves:
        others = Awaited(_published(store), _others(store), time.monotonic() + _PUBLISHED_SECONDS)

        def ready() -> bool:
            over = others.over(time.monotonic())
            if shares_directory(own, others.found):
                self._share()
            return over and not self._shared

        return RoundOfSaves(
            Writer(self._job, assigned.round, assigned.rank, assigned.size),
            Local(assigned.first_rank, self._nproc, assigned.world_size),
            RoundKeys.of(assigned),
            self._rules.copies,
            ready,
            lambda: targets(own, _read_peers(store)),
        )

    def _share(self) -> None:
        """Keep nothing from now on: what one member saves, all of them find."""
        if not self._shared:
            self._shared = True
            self._held.clear()
            if self._tier is not None:
                self._tier.drain.stop()
            say(f"{self._rules.directory} is shared with other members: nothing is copied")


def _drains(assigned: Assigned, connect: Callable[[], SignedStore], *, restored: bool) -> RoundOfDrains:
    """Return what the thread that copies to durable storage needs; it connects to the store once it needs it."""
    connected: list[SignedStore] = []

    def store() -> SignedStore:
        connected.extend([connect()] if not connected else [])
        return connected[0]

    def announced() -> str:
        found = store().read(_DRAINED, 0)
        return "" if found is None else found.value

    base = Choice.from_text(assigned.checkpoint) if restored else None
    return RoundOfDrains(
        assigned.round, assigned.rank, assigned.size, base, lambda text: store().write(_DRAINED, text), announced
    )


def _published(store: SignedStore) -> Published[Peer]:
    return Published(store, "saves", Peer.from_json)


def _others(store: SignedStore) -> list[int]:
    return [rank for rank in range(store.assigned.size) if rank != store.assigned.rank]


def _read_peers(store: SignedStore) -> list[Peer]:
    """Return the other members that have published what they hold. Raises RuntimeError without the store."""
    return [peer for peer in _published(store).read(_others(store)).values() if peer is not None]


def create(rules: CheckpointRules | None, job: str, address: str, nproc: int) -> RoundSaves:
    """Return the saves of this agent; if its directory cannot be used, it trains without them and prints why."""
    if rules is None:
        return NoSaves()
    try:
        return MemorySaves(rules, job, address, nproc)
    except OSError as error:
        problem = f"CheckpointDirectoryUnusable: no checkpoint is kept in memory: {error}"
        say(f"warning: {problem}")
        return NoSaves(problem)
