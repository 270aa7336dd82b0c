"""Restores among many members: who fetches how much from whom.

The members are of one process: each has the memory and the port that an agent has. So what they decide, the bytes and
the tree are those of as many pods; the time is that of one process.
"""

import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from pytorchjob_agent.contract.checkpoint_rules import CheckpointRules
from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.exchange.file_list import HeldFile
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.rendezvous.extension import OpenRound
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.saves import copies, directory
from pytorchjob_agent.saves.copies import SaveServer
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.held_saves import SaveId
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.placing import place
from pytorchjob_agent.saves.restore import Fetching, PartSources
from pytorchjob_agent.saves.round_saves import MemorySaves
from pytorchjob_agent.saves.round_start import Start, decide
from tests.simulation.saves import Store

SIZE = 100_000
"""Bytes of one part."""
JOB = "job"
_SAVED = RoundId(0, 1)
_LIMIT = 10**9
_AT_ONCE = 16


def hold(folder: Path, owner: int, writers: int = 1, job: str = JOB) -> None:
    """Leave an owner's part of a save in a pod's memory, as an agent of this pod does before it ends."""
    folder.mkdir(exist_ok=True)
    held, content = HeldSaves(folder, job, _LIMIT), owner.to_bytes(4) * (SIZE // 4)
    new = held.new_folder()
    (new / "0").write_bytes(content)
    path = f"step-5/rank{owner}.pt" if writers > 1 else "step-5.pt"
    file = HeldFile(path, SIZE, (new / "0").stat().st_mtime_ns, sha256(content).hexdigest())
    label = "step-5" if writers > 1 else ""
    held.keep(Manifest(job, SaveId(_SAVED, owner, 1), (file,), writers, label), new)
    held.close()


@dataclass
class Fetched:
    """What members have fetched from each other."""

    sources: dict[tuple[int, int], int] = field(default_factory=dict)
    """The port that answered, by the port of the member that asked and the owner of the part."""
    sent: Counter[int] = field(default_factory=Counter)
    """Bytes by the port that sent them."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bytes(self) -> int:
        """All bytes of files."""
        return self.sent.total()

    def levels(self, reader: int, owner: int) -> int:
        """How many members a part has passed on its way to a reader, with the holder."""
        source = self.sources.get((reader, owner))
        return 0 if source is None else 1 + self.levels(source, owner)


class Members:
    """The members of one job."""

    def __init__(self, folder: Path, size: int) -> None:
        """Their memories may have saves already."""
        self.folders = [folder / str(rank) for rank in range(size)]
        self.saves = [self._open(rank) for rank in range(size)]
        self.number = 1

    def _open(self, rank: int) -> MemorySaves:
        self.folders[rank].mkdir(exist_ok=True)
        return MemorySaves(CheckpointRules(str(self.folders[rank]), _LIMIT), JOB, "127.0.0.1", 1)

    def replace(self, rank: int) -> None:
        """The pod is lost with its memory; a new one takes its place."""
        self.saves[rank].close()
        shutil.rmtree(self.folders[rank])
        self.saves[rank] = self._open(rank)

    def begin(self) -> Fetched:
        """Begin a round; what was fetched until all members may start their workers."""
        self.number += 1
        store, size = Store(), len(self.saves)
        with _watched([saves._held for saves in self.saves], [saves._server.port for saves in self.saves]) as fetched:
            with ThreadPoolExecutor(size) as pool:
                starts = [pool.submit(self._start, rank, store) for rank in range(size)]
            for start in starts:
                start.result()
        return fetched

    def _start(self, rank: int, store: Store) -> None:
        size = len(self.saves)
        assigned = _assigned(RoundId(1, self.number), rank, size)
        signed = SignedStore(store, assigned)
        self.saves[rank].open(OpenRound(assigned, signed, lambda: SignedStore(store, assigned), lambda: True))

    def close(self) -> None:
        for saves in self.saves:
            saves.close()


@contextmanager
def _watched(members: Sequence[HeldSaves], ports: Sequence[int]) -> Iterator[Fetched]:
    """Note each fetch of a part: who asked, who answered, how many bytes came."""
    fetched, get, port_of = Fetched(), copies.get, dict(zip(map(id, members), ports, strict=True))

    def note(held: HeldSaves, choice: Any, owner: int, peer: tuple[str, int], *more: Any) -> Manifest:
        manifest = get(held, choice, owner, peer, *more)
        with fetched.lock:
            fetched.sources[port_of[id(held)], owner] = peer[1]
            fetched.sent[peer[1]] += manifest.size
        return manifest

    copies.get = note
    try:
        yield fetched
    finally:
        copies.get = get


@dataclass(frozen=True)
class Restored:
    """One restore of many members from a few holders."""

    seconds: float
    from_holders: tuple[int, ...]
    """Bytes that each holder sent."""
    from_others: int
    """Bytes that any other member sent at most."""
    levels: int
    """Members that the save passes until the last one has it."""
    equal: bool
    """True if all members have the same files."""


def from_holders(size: int, holders: int) -> Restored:
    """Rank 0 alone saves; a few members hold its save, and all others have none.

    A few members fetch at a time, in the order of their ranks: a thousand threads would measure this process alone.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folders = [Path(name) / str(rank) for rank in range(size)]
        for folder in folders[:holders]:
            hold(folder, 0)
        for folder in folders[holders:]:
            folder.mkdir()
        members = [HeldSaves(folder, JOB, _LIMIT) for folder in folders]
        keys = RoundKeys.of(_assigned(RoundId(1, 1), 0, size))
        servers = [SaveServer(held, "127.0.0.1") for held in members]
        for server in servers:
            server.use(keys)
        ports = [server.port for server in servers]
        peers = [_published(rank, held, ports[rank]) for rank, held in enumerate(members)]
        start = Start.from_json(decide(peers, RoundId(1, 1)).to_json())

        def restore(rank: int) -> None:
            assert start.choice is not None
            sources = PartSources(
                keys, lambda owner: [peers[at] for at in start.sources(owner, rank, size)], None, _always
            )
            parts = Fetching(members[rank], start.choice, sources).all(start.needed_by(rank, size))
            place(members[rank], parts, directory.read(members[rank].root))

        began = time.monotonic()
        with _watched(members, ports) as fetched, ThreadPoolExecutor(_AT_ONCE) as pool:
            for done in [pool.submit(restore, rank) for rank in range(size)]:
                done.result()
        seconds = time.monotonic() - began
        for server in servers:
            server.close()
        return Restored(
            seconds,
            tuple(fetched.sent[port] for port in ports[:holders]),
            max((fetched.sent[port] for port in ports[holders:]), default=0),
            max(fetched.levels(port, 0) for port in ports),
            len(_files(folders)) == 1,
        )


def _published(rank: int, held: HeldSaves, port: int) -> Peer:
    """A member as the others read it."""
    own = Peer(rank, "127.0.0.1", port, f"node-{rank}", held.identity(), held.list())
    return Peer.from_json(rank, own.to_json())


def _always() -> bool:
    return True


def _assigned(round_: RoundId, rank: int, size: int) -> Assigned:
    return Assigned(round_, rank, size, rank, size, "127.0.0.1", 1, 0, secret="secret")


def _files(folders: Sequence[Path]) -> set[tuple[str, ...]]:
    """The different lists of files in the members' directories, with a digest of each file."""
    return {
        tuple(
            f"{path.relative_to(folder)} {sha256(path.read_bytes()).hexdigest()}"
            for path in sorted(folder.rglob("*.pt"))
        )
        for folder in folders
    }


def by_rank(size: int) -> tuple[int, int]:
    """Each rank saves, and its neighbour has the copy: bytes fetched after a worker's crash, and by a replaced pod."""

    def prepare(folder: Path) -> None:
        for rank in range(size):
            hold(folder / str(rank), rank, size)
            hold(folder / str(rank), (rank - 1) % size, size)

    with _members(size, prepare) as members:
        crash = members.begin().bytes
        members.replace(size - 1)
        lost = members.begin()
        assert (members.folders[size - 1] / f"step-5/rank{size - 1}.pt").exists()
        return crash, lost.bytes


@contextmanager
def _members(size: int, prepare: Any) -> Iterator[Members]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        prepare(Path(name))
        members = Members(Path(name), size)
        try:
            yield members
        finally:
            members.close()
