"""The checkpoints in memory of one agent, from round to round: what it offers, what it restores, what it watches."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import assert_never

from pytorchjob_agent.contract.checkpoint_rules import CheckpointRules
from pytorchjob_agent.contract.environment import NODE
from pytorchjob_agent.contract.messages import Assigned, Shrink
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.exchange.wire import UNLIMITED, TransferPace
from pytorchjob_agent.rendezvous.extension import (
    Extension,
    NotStartedError,
    OpenRound,
    OwnPod,
    Registered,
    RunningWorkers,
)
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.saves import directory, placing
from pytorchjob_agent.saves.bounded import STORAGE
from pytorchjob_agent.saves.copies import SaveServer
from pytorchjob_agent.saves.drain import RoundOfDrains
from pytorchjob_agent.saves.durable_tier import DurableTier
from pytorchjob_agent.saves.held import FullError, HeldSaves
from pytorchjob_agent.saves.held_saves import Choice, HeldSave
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.peers import Peer, targets
from pytorchjob_agent.saves.recognition import Local, SeenFile
from pytorchjob_agent.saves.restore import Fetching, MissingError, PartSources
from pytorchjob_agent.saves.round_start import Start, StartKind
from pytorchjob_agent.saves.save_agreement import SaveAgreement
from pytorchjob_agent.saves.taking import Writer
from pytorchjob_agent.saves.watcher import RoundOfSaves, SaveWatcher
from pytorchjob_agent.saves.whole import WholeSaves
from pytorchjob_agent.system.background import Call
from pytorchjob_agent.system.console import say

_OFFER_SECONDS = 10.0
"""How long a directory may take to say what it has: a new round waits for it."""
_SETTLE_SECONDS = 10.0
"""How long a pod that leaves waits for the copy of its last save to peers, and then to durable storage."""
_DRAINED = "durable"
"""The key under which rank 0 announces what is copied to durable storage."""
_NO_PORT = 1
"""A member that holds nothing serves nothing; its place has a port all the same."""


class NoSaves(Extension):
    """The job has spec.agent.checkpoint, but this member cannot use its directory: nothing is held."""

    def __init__(self, problem: str, address: str) -> None:
        """Take the reason."""
        self._problem, self._address = problem, address

    @property
    def problem(self) -> str:
        """The reason."""
        return self._problem

    def open(self, round_: OpenRound) -> None:
        """Start the round only if no other member starts from a save."""
        if round_.assigned.enters:
            return
        agreement = SaveAgreement(round_.connect(), round_.goes_on)
        start = agreement.decide(Peer(round_.assigned.rank, self._address, _NO_PORT, "", ""))
        agreement.confirm(self._problem if start.kind is StartKind.RESTORE else "")


class MemorySaves(Extension):
    """The saves of an agent whose job has spec.agent.checkpoint."""

    def __init__(self, rules: CheckpointRules, job: str, address: str, nproc: int) -> None:
        """Open the directory and the port for peers. Raises OSError."""
        self._rules, self._job, self._address, self._nproc = rules, job, address, nproc
        self._held = HeldSaves(Path(rules.directory), job, rules.memory)
        self._server = SaveServer(self._held, address)
        self._watcher = SaveWatcher(self._held)
        self._pace = TransferPace(rules.copy_rate)
        durable_pace = TransferPace(rules.copy_rate)
        self._tier = None if rules.durable is None else DurableTier(self._held, rules.durable, job, durable_pace)
        self._drains: RoundOfDrains | None = None
        if self._tier is not None:
            self._watcher.on_full = self._copy_loose
        self._node = os.environ.get(NODE) or socket.gethostname()
        self._placed: list[SeenFile] = []
        self._round: RoundOfSaves | None = None
        self._left = self._had_left = frozenset[int]()
        """Members that have left the round, and all that ever had."""
        self._copy_again: Callable[[], None] | None = None
        self._stored: tuple[HeldSave, ...] = ()
        self._shared = self._said_shared = False
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

    def prepare(self) -> None:
        """Read what durable storage has, while the agent has no workers."""
        self._stored = () if self._tier is None else self._tier.offered()

    def open(self, round_: OpenRound) -> None:
        """Agree on a save, bring it in place, and wait until all members have it."""
        assigned, connect = round_.assigned, round_.connect
        keys = RoundKeys.of(assigned)
        self._server.use(keys)
        if self._tier is not None:
            self._tier.drain.stop()
        self._placed, self._round, self._drains, self._settle_by, self._copy_again = [], None, None, None, None
        self._left = self._had_left = frozenset()
        if not assigned.secret:
            self._watcher.report("no checkpoint is copied: this operator gives rounds no secret")
            return
        try:
            own = Call(lambda: self._offer(assigned), STORAGE).result(_OFFER_SECONDS)
        except OSError as error:
            problem = f"CheckpointDirectoryUnusable: {self._rules.directory}: {error}"
            self._watcher.report(problem)
            NoSaves(problem, self._address).open(round_)
            return
        agreement = SaveAgreement(connect(), round_.goes_on)
        if assigned.enters:  # it gets its state from another rank; what it saves itself is held from the next round on
            self._held.enter(assigned.round)
            agreement.enter(own)
            return
        start = agreement.decide(own)
        failure = ""
        try:
            self._carry_out(start, assigned, agreement)
        except (MissingError, FullError, OSError) as error:
            failure = f"CheckpointNotRestored: {error}"
            self._watcher.report(failure)
        agreement.confirm(failure)
        self._held.begin(start.choice, assigned.round)
        if start.choice is not None:
            self._held.drop_before(start.choice)  # all members have fetched it
        self._shared = start.kind is StartKind.SHARED
        if self._shared:
            self._share()
        else:
            self._round = self._make_round(assigned, agreement, own, WholeSaves(connect))
            self._drains = _drains(assigned, connect, start.choice)
            if lacking := start.lacking(assigned.size, self._rules.copies):
                self._copy_again = lambda: self._fetch_copies(start, lacking, assigned, agreement, own)

    def begin(self, running: RunningWorkers) -> None:
        """Watch the directory while these workers run."""
        if self._round is None:
            return
        try:
            self._watcher.begin(self._round, running.pids.values(), self._placed)
            if self._tier is not None and self._drains is not None:
                self._tier.drain.begin(self._drains)
        except OSError as error:
            self._watcher.report(f"no checkpoint is kept: {error}")
        if self._copy_again is not None:
            threading.Thread(target=self._copy_again, name="checkpoint copies", daemon=True).start()

    def shrink(self, change: Shrink, ranks: Sequence[int]) -> None:
        """Keep the newest save's copies at members that are there, also at one that has come back."""
        self._left = frozenset(change.members)
        self._had_left |= self._left
        self._watcher.copy_again()

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

    def _offer(self, assigned: Assigned) -> Peer:
        return Peer(
            assigned.rank,
            self._address,
            self._server.port,
            self._node,
            self._held.identity(),
            () if self._shared else self._held.list(),
            assigned.zone,
            () if self._shared else self._stored,
            () if self._shared or self._tier is None else self._tier.parts(),
            _fingerprint(self._rests()),
            self._held.left,
        )

    def _rests(self) -> list[SeenFile]:
        return self._watcher.rests(directory.read(self._held.root))

    def _carry_out(self, start: Start, assigned: Assigned, agreement: SaveAgreement) -> None:
        """Bring this member's files in place. Raises MissingError, FullError and OSError."""
        match start.kind:
            case StartKind.RESTORE:
                self._restore(start, assigned, agreement)
            case StartKind.SET_ASIDE:
                if aside := placing.set_aside(self._held, self._rests()):
                    say(
                        "no save is complete at all members, so the workers start without one;"
                        f" moved to {self._held.folder}/aside: {', '.join(aside)[:500]}"
                    )
            case StartKind.LEAVE:
                if start.rivals:
                    self._watcher.report(
                        f"CheckpointsOfOneName: the files are left to the script: each rank saves {start.rivals},"
                        " so nothing shows which of them belong together; put the rank and the step into the name"
                    )
                elif self._held.left:
                    say(f"the files in {self._rules.directory} are left to the script: {self._watcher.problem}")
            case StartKind.NOTHING | StartKind.SHARED:
                pass
            case _:
                assert_never(start.kind)

    def _restore(self, start: Start, assigned: Assigned, agreement: SaveAgreement) -> None:
        assert start.choice is not None
        started = time.monotonic()
        parts = self._fetching(start, assigned, agreement, UNLIMITED).all(start.needed_by(assigned.rank, assigned.size))
        self._placed, aside = placing.place(
            self._held, parts, self._rests(), self._watcher.long_open, self._watcher.replacing.is_sure
        )
        own = [part for part in parts if part.id.owner == assigned.rank]
        self._watcher.bursts.take_over(own[0].together if own else ())
        self._held.reserve = sum(part.size for part in own)
        self._watcher.make_room()
        seconds, size = time.monotonic() - started, sum(part.size for part in parts)
        say(f"checkpoint {start.choice.to_text()}: {size} bytes are in place after {seconds:.2f} s")
        if aside:
            say(f"moved aside, because it is not whole or not held by enough members: {', '.join(aside)[:500]}")

    def _fetching(self, start: Start, assigned: Assigned, agreement: SaveAgreement, pace: TransferPace) -> Fetching:
        assert start.choice is not None

        def sources(owner: int) -> list[Peer]:
            return agreement.peers(start.sources(owner, assigned.rank, assigned.size))

        return Fetching(
            self._held, start.choice, PartSources(RoundKeys.of(assigned), sources, self._tier, agreement.goes_on, pace)
        )

    def _fetch_copies(
        self, start: Start, lacking: Mapping[int, int], assigned: Assigned, agreement: SaveAgreement, own: Peer
    ) -> None:
        """Fetch the copies that this member is to keep instead of one that was lost; the workers do not wait for it."""
        try:
            peers = sorted([own, *agreement.others()], key=lambda peer: peer.rank)
            for owner, count in lacking.items():
                order = targets(peers[owner], [peer for peer in peers if peer.rank != owner])
                if own.rank in start.new_keepers(owner, [peer.rank for peer in order], count):
                    self._fetching(start, assigned, agreement, self._pace).all([owner])
        except (MissingError, NotStartedError, RuntimeError) as error:
            if agreement.goes_on():
                say(f"no copy of another member's checkpoint is kept until its next save: {error}")

    def _make_round(self, assigned: Assigned, agreement: SaveAgreement, own: Peer, whole: WholeSaves) -> RoundOfSaves:
        return RoundOfSaves(
            Writer(self._job, assigned.round, assigned.rank, assigned.size, assigned.world_size),
            Local(assigned.first_rank, self._nproc, assigned.world_size),
            RoundKeys.of(assigned),
            self._rules.copies,
            lambda: self._keepers(agreement, own),
            self._pace,
            whole,
            drops=self._tier is None,
        )

    def _keepers(self, agreement: SaveAgreement, own: Peer) -> list[Peer]:
        """Return the peers that may keep copies, the best first. The store is read: no call of the agent's loop."""
        left = self._left
        agreement.forget(self._had_left - left)
        return targets(own, agreement.others(left))

    def _share(self) -> None:
        """Keep nothing: what one member saves, all of them find."""
        if self._held.list():
            self._held.clear()
        if not self._said_shared:
            self._said_shared = True
            say(f"{self._rules.directory} is shared with other members: nothing is copied")


def _drains(assigned: Assigned, connect: Callable[[], SignedStore], base: Choice | None) -> RoundOfDrains:
    """Return what the thread that copies to durable storage needs; it connects to the store once it needs it."""
    connected: list[SignedStore] = []

    def store() -> SignedStore:
        connected.extend([connect()] if not connected else [])
        return connected[0]

    def announced() -> str:
        found = store().read(_DRAINED, 0)
        return "" if found is None else found.value

    return RoundOfDrains(
        assigned.round, assigned.rank, assigned.size, base, lambda text: store().write(_DRAINED, text), announced
    )


def _fingerprint(files: Sequence[SeenFile]) -> str:
    """Return a text that is equal for equal files; empty without any."""
    listed = sorted([file.path, file.size, file.mtime_ns, file.link] for file in files)
    return sha256(json.dumps(listed).encode()).hexdigest()[:32] if listed else ""


def _create(pod: OwnPod) -> Extension:
    """Return the saves of this agent; if its directory cannot be used, it trains without them and prints why."""
    rules = CheckpointRules.from_env(pod.environ)
    if rules is None:
        return Extension()
    try:
        return MemorySaves(rules, pod.job, pod.address, pod.nproc)
    except OSError as error:
        problem = f"CheckpointDirectoryUnusable: no checkpoint is kept in memory: {error}"
        say(f"warning: {problem}")
        return NoSaves(problem, pod.address)


SAVES = Registered(_create)
