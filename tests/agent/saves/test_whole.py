"""When a save of several writers is whole, no member keeps older ones."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.exchange.round_keys import RoundKeys
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.saves.copies import SaveServer
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.recognition import Local
from pytorchjob_agent.saves.taking import Writer
from pytorchjob_agent.saves.watcher import RoundOfSaves, SaveWatcher
from pytorchjob_agent.saves.whole import WholeSaves, newest_common
from tests.agent.rendezvous.stores import Store
from tests.agent.saves import keys
from tests.waiting import until

ROUND = RoundId(1, 1)
ASSIGNED = Assigned(ROUND, 0, 3, 0, 3, "127.0.0.1", 1, 0, secret="5ec2e7")


@pytest.mark.parametrize(
    ("labels", "newest"),
    [
        pytest.param([["a", "b"], ["a", "b"]], "b", id="the last one"),
        pytest.param([["a", "b"], ["a"]], "a", id="one has not copied it yet"),
        pytest.param([["a"], ["a", "b"]], "a", id="one is further"),
        pytest.param([["b", "c"], ["a"]], "", id="one is far behind"),
        pytest.param([["a"], []], "", id="one has copied nothing"),
        pytest.param([[], ["a"]], "", id="rank 0 has copied nothing"),
        pytest.param([["a", "b"]], "b", id="a single one"),
        pytest.param([], "", id="not all have told anything"),
    ],
)
def test_the_newest_that_all_have(labels: list[list[str]], newest: str) -> None:
    assert newest_common(labels) == newest


def members(count: int) -> list[WholeSaves]:
    store = Store()
    places = [replace(ASSIGNED, rank=rank, first_rank=rank, size=count) for rank in range(count)]
    return [WholeSaves(lambda place=place: SignedStore(store, place)) for place in places]  # type: ignore[misc]


def test_all_members_hear_of_it_from_rank_0() -> None:
    zero, one, two = members(3)
    for member in (zero, one):
        member.tell("step-1")
    assert (zero.newest(), one.newest(), two.newest()) == ("", "", "")
    for label in ("step-1", "step-2"):
        two.tell(label)
    assert one.newest() == "", "rank 0 has not looked yet"
    assert (zero.newest(), one.newest(), two.newest()) == ("step-1", "step-1", "step-1")


def test_a_label_counts_once_however_often_it_is_copied() -> None:
    zero, one = members(2)
    for label in ("a", "b", "b", "c", "c", "d", "d"):
        zero.tell(label)
    one.tell("a")
    zero.newest()
    assert one.newest() == "a"


@pytest.mark.parametrize("text", ["", "5", '["a", 5]', '["a", "b", "c", "d", "e"]', f'["{"a" * 1000}"]'])
def test_what_no_agent_publishes_counts_as_nothing(text: str) -> None:
    store = Store()
    place = replace(ASSIGNED, size=2)
    zero = WholeSaves(lambda: SignedStore(store, place))
    zero.tell("a")
    SignedStore(store, replace(place, rank=1)).write("copied/1", text)
    assert zero.newest() == ""


class Pod:
    """The memory of one of two pods whose ranks both save."""

    def __init__(self, folder: Path, rank: int, keys: RoundKeys, limit: int) -> None:
        self.root, self.rank, self.keys = folder / f"pod-{rank}", rank, keys
        self.root.mkdir()
        self.held = HeldSaves(self.root, "job", limit)
        self.server = SaveServer(self.held, "127.0.0.1")
        self.server.use(keys)
        self.watcher = SaveWatcher(self.held)
        self.held.begin(None, ROUND)

    def begin(self, other: "Pod", whole: WholeSaves) -> None:
        def peers() -> Sequence[Peer]:
            return [Peer(other.rank, "127.0.0.1", other.server.port, "node", "directory")]

        round_ = RoundOfSaves(
            Writer("job", ROUND, self.rank, 2, 2), Local(self.rank, 1, 2), self.keys, 1, peers, whole=whole
        )
        self.watcher.begin(round_, [os.getpid()], [])

    def save(self, step: int, size: int, keeps: int = 2) -> None:
        """Write this rank's part of a step by a rename, and delete an old one."""
        (self.root / "new.tmp").write_bytes(bytes([step, self.rank]) * (size // 2))
        os.replace(self.root / "new.tmp", self.root / f"step-{step}-rank{self.rank}.pt")
        (self.root / f"step-{step - keeps}-rank{self.rank}.pt").unlink(missing_ok=True)

    def parts(self) -> list[tuple[str, int]]:
        """The steps and the owners of what it holds."""
        return sorted((save.label, save.id.owner) for save in self.held.list())

    def close(self) -> None:
        self.watcher.close()
        self.server.close()


def parts(step: int) -> list[tuple[str, int]]:
    """Both parts of a save, and nothing else."""
    return [(f"step-{step}-rank*.pt", rank) for rank in range(2)]


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Sequence[Pod]]:
    size, lists = 100_000, 20_000
    made = [Pod(tmp_path, rank, own, 7 * size + lists) for rank, own in enumerate(keys.members("secret", 2, ROUND))]
    for pod, other, whole in zip(made, made[::-1], members(2), strict=True):
        pod.begin(other, whole)
    yield made
    for pod in made:
        pod.close()


def test_the_memory_of_the_formula_is_enough(pods: Sequence[Pod]) -> None:
    """The script keeps two: three own files and the next one, two files of copies and the next one."""
    for step in range(1, 6):
        for pod in pods:
            pod.save(step, 100_000)
        until(lambda step=step: all(pod.parts() == parts(step) for pod in pods))  # type: ignore[misc]
        assert [pod.watcher.problem for pod in pods] == ["", ""]


def test_as_long_as_one_part_is_missing_the_older_save_stays(pods: Sequence[Pod]) -> None:
    zero, one = pods
    for pod in pods:
        pod.save(1, 1000)
    until(lambda: all(pod.parts() == parts(1) for pod in pods))
    zero.save(2, 1000)
    until(lambda: len(one.parts()) == 3)
    looked = zero.watcher._look_at
    until(lambda: zero.watcher._look_at > looked + 5)
    assert zero.parts() == sorted([*parts(1), parts(2)[0]])
    one.save(2, 1000)
    until(lambda: all(pod.parts() == parts(2) for pod in pods))


def test_a_part_that_no_peer_keeps_makes_no_save_whole(pods: Sequence[Pod]) -> None:
    zero, one = pods
    for pod in pods:
        pod.save(1, 1000)
    until(lambda: all(pod.parts() == parts(1) for pod in pods))
    one.held.reserve = 10**7
    zero.save(2, 1000)
    until(lambda: zero.watcher.problem)
    one.held.reserve = 0
    one.save(2, 1000)
    until(lambda: len(zero.parts()) == 4)
    looked = one.watcher._look_at
    until(lambda: one.watcher._look_at > looked + 5)
    assert one.parts() == sorted([*parts(1), parts(2)[1]])
