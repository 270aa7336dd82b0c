"""Members of a round agree on a save, and start only if all have its files: real memory and real ports, one store."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytorchjob_agent.contract.checkpoint_rules import CheckpointRules
from pytorchjob_agent.contract.messages import Assigned, RoundId, Shrink
from pytorchjob_agent.rendezvous.extension import Extension, NotStartedError, OpenRound, RoundEndedError, RunningWorkers
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.round_saves import MemorySaves, NoSaves
from pytorchjob_agent.saves.save_agreement import SaveAgreement
from tests.agent.saves.test_copies import make
from tests.simulation.saves import Store
from tests.waiting import until

ONE, TWO = RoundId(1, 1), RoundId(1, 2)
_LONGEST = 30.0
"""Seconds after which a round ends whose members wait for each other for ever."""


class Members:
    """The members of one job, each with a directory of its own; `None`: it cannot use any."""

    def __init__(self, *directories: Path | None) -> None:
        self.directories = directories
        self.saves: list[Extension] = [
            NoSaves("its directory cannot be used", "127.0.0.1") if path is None else _memory(path)
            for path in directories
        ]
        self.number, self.store = 2, Store()

    def begin(self) -> list[str]:
        """Begin a round; return why each member does not start, empty for each that does."""
        self.number += 1
        self.store, size, late = Store(), len(self.saves), threading.Event()
        timer = threading.Timer(_LONGEST, late.set)
        timer.start()
        with ThreadPoolExecutor(size) as pool:
            reasons = [*pool.map(lambda rank: self.open(rank, lambda: not late.is_set()), range(size))]
        timer.cancel()
        return reasons

    def open(self, rank: int, goes_on: Callable[[], bool] = lambda: True, enters: int = 0) -> str:
        """Open the round as this member; `enters`: it comes into the round while it runs."""
        size, id_ = len(self.saves), RoundId(1, self.number)
        assigned = Assigned(id_, rank, size, rank, size, "127.0.0.1", 1, 0, secret="secret", enters=enters)
        store = self.store
        try:
            own = SignedStore(store, assigned)
            self.saves[rank].open(OpenRound(assigned, own, lambda: SignedStore(store, assigned), goes_on))
        except NotStartedError as error:
            return str(error)
        self.saves[rank].begin(RunningWorkers({0: os.getpid()}, assigned, lambda _: None))
        return ""

    def go_on(self, number: int, *left: int) -> None:
        """Tell all members who has left the round, as the coordinator does."""
        ranks = [rank for rank in range(len(self.saves)) if rank not in left]
        for rank in ranks:
            self.saves[rank].shrink(Shrink(RoundId(1, self.number), number, left, left), ranks)

    def held(self, rank: int) -> list[str]:
        """The saves in a member's memory."""
        folder = self.directories[rank]
        assert folder is not None
        return sorted(path.parent.name for path in folder.glob(".pytorchjob/*/manifest.json"))

    def close(self) -> None:
        for saves in self.saves:
            saves.close()


def _memory(path: Path) -> MemorySaves:
    path.mkdir(exist_ok=True)
    return MemorySaves(CheckpointRules(str(path), 10**6), "job", "127.0.0.1", 1)


def hold(folder: Path, round_: RoundId = TWO) -> None:
    """Leave a save in a pod's memory, as an earlier agent does."""
    folder.mkdir(exist_ok=True)
    held = HeldSaves(folder, "job", 10**6)
    make(held, {"sub/a.pt": b"whole"}, round_=round_)
    held.close()


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [tmp_path / "zero", tmp_path / "one"]


@pytest.fixture
def started() -> Iterator[list[Members]]:
    made: list[Members] = []
    yield made
    for members in made:
        members.close()


def test_all_start_with_the_save_that_one_holds_and_older_ones_go(folders: list[Path], started: list[Members]) -> None:
    for round_ in (ONE, TWO):
        hold(folders[1], round_)
    started.append(Members(*folders))
    assert started[0].begin() == ["", ""]
    assert [(folder / "sub/a.pt").read_bytes() for folder in folders] == [b"whole"] * 2
    assert [started[0].held(rank) for rank in range(2)] == [["1.2_0_1"]] * 2


def test_none_starts_if_one_cannot_have_its_files_and_nothing_is_dropped(
    folders: list[Path], started: list[Members], tmp_path: Path
) -> None:
    for round_ in (ONE, TWO):
        hold(folders[0], round_)
    (tmp_path / "outside").mkdir()
    started.append(Members(*folders))
    (folders[1] / "sub").symlink_to(tmp_path / "outside")
    reasons = started[0].begin()
    assert all("CheckpointNotRestored" in reason for reason in reasons)
    assert started[0].held(0) == ["1.1_0_1", "1.2_0_1"]
    (folders[1] / "sub").unlink()
    assert started[0].begin() == ["", ""]
    assert (folders[1] / "sub/a.pt").read_bytes() == b"whole"


@pytest.mark.parametrize("kept", [True, False])
def test_a_member_without_a_directory_starts_only_with_others_that_have_no_save(
    folders: list[Path], started: list[Members], kept: bool
) -> None:
    if kept:
        hold(folders[0])
    started.append(Members(folders[0], None))
    assert ["cannot be used" in reason for reason in started[0].begin()] == [kept, kept]


def test_members_that_go_on_keep_the_copy_of_a_lost_one_and_give_it_to_the_one_that_comes_back(
    tmp_path: Path, started: list[Members]
) -> None:
    folders = [tmp_path / str(rank) for rank in range(3)]
    members = Members(*folders)
    started.append(members)
    assert members.begin() == [""] * 3
    (folders[0] / "step-1.pt").write_bytes(b"first")
    assert until(lambda: members.held(0) == ["1.3_0_1"])
    assert until(lambda: [members.held(rank) for rank in (1, 2)].count(["1.3_0_1"]) == 1)
    lost, other = (1, 2) if members.held(1) else (2, 1)
    members.saves[lost].close()
    members.go_on(1, lost)
    assert until(lambda: members.held(other) == ["1.3_0_1"]), "the last save has two holders again"
    members.directories = tuple(tmp_path / "new" if rank == lost else each for rank, each in enumerate(folders))
    members.saves[lost] = _memory(tmp_path / "new")
    assert members.open(lost, enters=2) == ""
    members.go_on(2)
    members.saves[other].close()
    members.go_on(3, other)
    (folders[0] / "step-2.pt").write_bytes(b"second")
    assert until(lambda: members.held(lost) != [] and members.held(lost) == members.held(0)[-len(members.held(lost)) :])


def test_rounds_in_which_one_rank_saves_do_not_push_out_what_all_have_saved(
    tmp_path: Path, started: list[Members]
) -> None:
    """Of three members none holds all parts, so none can know by itself which save is whole."""
    ranks = range(3)
    folders = [tmp_path / str(rank) for rank in ranks]

    def save(step: int, *saving: int) -> None:
        for rank in saving:
            path = folders[rank] / f"step-{step}/rank{rank}.pt"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"whole")
        for saves in started[0].saves:
            saves.over(clean=True)

    started.append(Members(*folders))
    assert started[0].begin() == ["", "", ""]
    save(200, *ranks)
    for _ in range(4):
        assert started[0].begin() == ["", "", ""]
        assert all((folders[rank] / f"step-200/rank{rank}.pt").exists() for rank in ranks)
        save(300, 0)
        assert "1.3_0_1" in started[0].held(0)


def test_a_new_agent_awaits_what_the_writer_of_the_save_has_learned(
    folders: list[Path], started: list[Members]
) -> None:
    """Files that are saves of their own: without what rank 0's lost agent knew, each waits for the other one."""
    folders[1].mkdir()
    held = HeldSaves(folders[1], "job", 10**6)
    make(held, {"last.pt": b"old", "best.pt": b"old"}, round_=TWO, together=((("last.pt", 1),), (("best.pt", 1),)))
    held.close()
    started.append(Members(*folders))
    assert started[0].begin() == ["", ""]
    (folders[0] / "last.pt").write_bytes(b"new")
    started[0].saves[0].over(clean=True)
    assert started[0].begin() == ["", ""]
    assert [(folder / "last.pt").read_bytes() for folder in folders] == [b"new"] * 2
    (name,) = started[0].held(1)
    copy = Manifest.from_json((folders[1] / f".pytorchjob/{name}/manifest.json").read_text())
    assert len(copy.together) == 2, "the next new agent is to know it too"


def test_in_a_shared_directory_nothing_is_held_nor_placed(folders: list[Path], started: list[Members]) -> None:
    hold(folders[0])
    started.append(Members(folders[0], folders[0]))
    for _ in range(2):
        assert started[0].begin() == ["", ""]
        (folders[0] / "new.pt").write_bytes(b"new")
        for saves in started[0].saves:
            saves.over(clean=True)
        assert started[0].held(0) == []
    assert [path.name for path in folders[0].glob("*") if path.is_file()] == ["new.pt"]


def test_files_of_no_complete_save_are_set_aside_unless_all_have_them(
    folders: list[Path], started: list[Members]
) -> None:
    started.append(Members(*folders))
    for folder in folders:
        (folder / "equal.pt").write_bytes(b"equal")
        os.utime(folder / "equal.pt", ns=(1, 1))
    assert started[0].begin() == ["", ""]
    assert all((folder / "equal.pt").exists() for folder in folders)
    (folders[1] / "rest.pt").write_bytes(b"rest")
    assert started[0].begin() == ["", ""]
    assert not any([*folder.glob("*.pt")] for folder in folders)


class WaitsOnError(Exception):
    """A member has waited for longer than it should."""


def agreement(store: Store, rank: int, *, goes_on: bool = True) -> SaveAgreement:
    """The part of one of two members, which waits for a moment only."""
    pauses = iter(range(3))

    def pause(_: float) -> None:
        if next(pauses, None) is None:
            raise WaitsOnError

    assigned = Assigned(TWO, rank, 2, rank, 2, "127.0.0.1", 1, 0, secret="secret")
    return SaveAgreement(SignedStore(store, assigned), lambda: goes_on, pause)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_member_waits_until_the_others_have_their_files(rank: int) -> None:
    with pytest.raises(WaitsOnError):
        agreement(Store(), rank).confirm("")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_member_that_fails_ends_the_fetches_and_the_waits_of_the_others(rank: int) -> None:
    store = Store()
    with pytest.raises(NotStartedError, match="no memory"):
        agreement(store, 1 - rank).confirm("no memory")
    assert not agreement(store, rank).goes_on()
    with pytest.raises(NotStartedError, match=f"node {1 - rank}: no memory"):
        agreement(store, rank).confirm("")


@pytest.mark.parametrize("rank", [0, 1])
def test_the_end_of_the_round_ends_the_wait(rank: int) -> None:
    with pytest.raises(RoundEndedError):
        agreement(Store(), rank, goes_on=False).confirm("")
