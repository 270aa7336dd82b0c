"""The watcher on a real directory: it holds what a script saves, copies it to a peer, and never delays the script."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.files import open_file
from pytorchjob_agent.saves import directory, watcher
from pytorchjob_agent.saves.copies import SaveServer
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.held_saves import HeldSave
from pytorchjob_agent.saves.manifest import MOST_FILES
from pytorchjob_agent.saves.peers import Peer
from pytorchjob_agent.saves.recognition import Local, SeenFile
from pytorchjob_agent.saves.rename_watch import RenameWatch
from pytorchjob_agent.saves.taking import Writer
from pytorchjob_agent.saves.watcher import SCAN_SECONDS as _SCAN
from pytorchjob_agent.saves.watcher import RoundOfSaves, SaveWatcher
from tests.agent.saves.keys import members as keys_of
from tests.ports import free_port
from tests.waiting import held_by_another_thread, until

OWN, THEIRS = keys_of("secret", 2)


class Member:
    """An agent's memory with a peer beside it."""

    def __init__(
        self,
        folder: Path,
        limit: int,
        members: int = 2,
        peer_limit: int = 10**6,
        patience: tuple[float, float] = (30, 30),
    ) -> None:
        self.root = folder / "own"
        (folder / "peer").mkdir()
        self.root.mkdir()
        self.held, self.peer = HeldSaves(self.root, "job", limit), HeldSaves(folder / "peer", "job", peer_limit)
        self.server = SaveServer(self.peer, "127.0.0.1")
        self.server.use(THEIRS)
        self.watcher = SaveWatcher(self.held, *patience)
        self.begin(1, members)

    def begin(self, number: int, members: int) -> None:
        writer = Writer("job", RoundId(1, number), 0, members, members)
        round_ = RoundOfSaves(writer, Local(0, 1, members), OWN, 1, self.peers)
        self.watcher.begin(round_, [os.getpid()], [])

    def peers(self) -> Sequence[Peer]:
        return [Peer(1, "127.0.0.1", self.server.port, "node", "directory")]

    def newest(self) -> HeldSave | None:
        return next(iter(self.held.list()), None)

    def close(self) -> None:
        self.watcher.close()
        self.server.close()


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    made = Member(tmp_path, 10**6)
    yield made
    made.close()


def test_a_save_is_held_and_copied(member: Member) -> None:
    (member.root / "latest.pt").write_bytes(b"first")
    until(lambda: len(member.peer.list()) == 1)
    (member.root / "new").write_bytes(b"second")
    os.replace(member.root / "new", member.root / "latest.pt")
    until(lambda: len(member.peer.list()) == 2)
    assert member.held.list() == member.peer.list()


def test_the_memory_of_the_formula_holds_two_saves_and_their_copies(tmp_path: Path) -> None:
    """The script keeps two saves: three own files and the next one, three files of copies and the next one."""
    size, lists = 100_000, 10_000
    member = Member(tmp_path, 4 * size + lists, peer_limit=4 * size + lists)
    try:
        for step in range(1, 7):
            (member.root / "save.tmp").write_bytes(bytes([step]) * size)
            os.replace(member.root / "save.tmp", member.root / f"step-{step}.pt")
            (member.root / f"step-{step - 2}.pt").unlink(missing_ok=True)
            until(lambda step=step: _last_step(member.held) == _last_step(member.peer) == step)  # type: ignore[misc]
            assert len(member.held.list()) == len(member.peer.list()) == min(step, 2)
            assert member.watcher.problem == ""
    finally:
        member.close()


def _last_step(held: HeldSaves) -> int:
    """The step of the newest file that is held."""
    manifest = held.newest(RoundId(1, 1), 0)
    paths = [] if manifest is None else [file.path for file in manifest.files]
    return max((int(path.removeprefix("step-").removesuffix(".pt")) for path in paths), default=0)


def test_a_peer_that_refuses_is_a_problem_until_the_next_copy(member: Member) -> None:
    member.peer.reserve = 10**7
    (member.root / "latest.pt").write_bytes(b"first")
    until(lambda: "node 1 keeps no copy of the last checkpoint" in member.watcher.problem)
    member.peer.reserve = 0
    (member.root / "latest.pt").unlink()
    (member.root / "latest.pt").write_bytes(b"second")
    until(lambda: member.watcher.problem == "")
    assert [save.size for save in member.peer.list()] == [6]


def test_a_copy_that_met_a_peer_of_the_next_round_is_no_problem_there(member: Member) -> None:
    _, theirs = keys_of("next round", 2)
    member.server.use(theirs)
    (member.root / "latest.pt").write_bytes(b"first")
    until(lambda: "node 1 keeps no copy of the last checkpoint" in member.watcher.problem)
    member.begin(2, 2)
    assert member.watcher.problem == ""


def test_after_a_peer_that_keeps_nothing_the_next_one_keeps_the_copy(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Peer(2, "127.0.0.1", free_port(), "node", "directory")
    peers = [gone, *member.peers()]
    monkeypatch.setattr(member, "peers", lambda: peers)
    member.begin(2, 2)
    (member.root / "latest.pt").write_bytes(b"first")
    until(lambda: len(member.peer.list()) == 1)
    until(lambda: member.watcher.problem == "")


def test_a_save_that_is_opened_again_between_two_readings_is_not_taken(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was renamed into place, and would be complete at once."""
    search, again = watcher.open_for_writing, list[BinaryIO]()
    scans = []

    def then_opened(root: Path, ancestor: int) -> set[tuple[int, int]]:
        found = search(root, ancestor)
        if (root / "latest.pt").exists():
            scans.append(found)
            again.extend([] if again else [(root / "latest.pt").open("ab", buffering=0)])
            again[0].write(b"...")
        return found

    monkeypatch.setattr(watcher, "open_for_writing", then_opened)
    (member.root / "latest.tmp").write_bytes(b"first")
    os.replace(member.root / "latest.tmp", member.root / "latest.pt")
    until(lambda: len(scans) > 2)
    again[0].close()
    assert member.held.list() == ()


def test_the_last_save_of_workers_that_end_with_success_is_held(member: Member) -> None:
    (member.root / "latest.pt").write_bytes(b"first")
    until(member.newest)
    (member.root / "latest.pt").unlink()
    (member.root / "latest.pt").write_bytes(b"second")
    member.watcher.end(clean=True)
    assert [save.size for save in member.held.list()] == [6, 5]


def test_a_save_renamed_just_before_the_workers_crash_is_held(member: Member) -> None:
    (member.root / "latest.pt").write_bytes(b"first")
    until(member.newest)
    (member.root / "latest.pt.tmp").write_bytes(b"second")
    os.replace(member.root / "latest.pt.tmp", member.root / "latest.pt")
    (member.root / "next.pt.tmp").write_bytes(b"cut")
    member.watcher.end(clean=False)
    assert [save.size for save in member.held.list()] == [6, 5]


def test_a_script_that_renames_each_save_has_the_newest_held(member: Member) -> None:
    """It saves again before the directory rests."""
    for step in range(1, 11):
        (member.root / "latest.tmp").write_bytes(b"x" * step)
        os.replace(member.root / "latest.tmp", member.root / "latest.pt")
        until(lambda step=step: _sizes(member)[:1] == [step])  # type: ignore[misc]


def _sizes(member: Member) -> list[int]:
    return [save.size for save in member.held.list()]


def test_a_pod_that_leaves_waits_for_its_last_copy(member: Member) -> None:
    (member.root / "latest.pt").write_bytes(b"first")
    until(lambda: len(member.peer.list()) == 1)
    (member.root / "latest.pt").unlink()
    (member.root / "latest.pt").write_bytes(b"second")
    until(lambda: member.watcher.settle(ended=True))
    assert [save.size for save in member.peer.list()] == [6, 5]


def test_a_pod_that_leaves_does_not_wait_for_the_next_scan(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    (member.root / "latest.pt").write_bytes(b"first")
    until(lambda: len(member.peer.list()) == 1)
    monkeypatch.setattr("pytorchjob_agent.saves.watcher.SCAN_SECONDS", 3600.0)
    (member.root / "second.tmp").touch()
    os.replace(member.root / "second.tmp", member.root / "second.log")  # the watcher sees it, and sleeps for an hour
    time.sleep(2 * _SCAN)
    until(lambda: member.watcher.settle(ended=True))


def test_what_a_kill_cut_is_not_held_in_the_next_round_either(member: Member) -> None:
    (member.root / "latest.pt").write_bytes(b"torn")
    member.watcher.end(clean=False)
    member.begin(2, 2)
    (member.root / "other.pt").write_bytes(b"whole")
    save = until(member.newest)
    assert [file.path for file in member.held.get(save.id).files] == ["other.pt"]  # type: ignore[union-attr]


def test_a_file_of_torch_save_that_is_cut_is_not_held(member: Member) -> None:
    (member.root / "a.pt").write_bytes(b"PK\x03\x04 and no more")
    (member.root / "b.pt").write_bytes(b"whole")
    save = until(member.newest)
    assert [file.path for file in member.held.get(save.id).files] == ["b.pt"]  # type: ignore[union-attr]


def says(capsys: pytest.CaptureFixture[str], words: str) -> None:
    """Wait until it is printed; the watcher of a test before may print something else meanwhile."""
    printed = [""]

    def is_said() -> bool:
        printed[0] += capsys.readouterr().err
        return words in printed[0]

    until(is_said, story=lambda: printed[0])


def test_a_limit_below_the_save_leaves_the_memory_to_the_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    member = Member(tmp_path, 10_000)
    (member.root / "latest.pt").write_bytes(b"x" * 20_000)
    says(capsys, "CheckpointMemoryFull: no checkpoint is kept in memory")
    assert (member.root / "latest.pt").read_bytes() == b"x" * 20_000
    assert "20000 bytes, and memory has 10000" in member.watcher.problem
    assert (member.held.list(), member.peer.list()) == ((), ())
    member.close()


def test_a_directory_with_too_many_files_is_left_to_the_script(
    member: Member, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(MOST_FILES + 1):
        (member.root / f"{number}.pt").touch()
    says(capsys, f"{MOST_FILES + 1} files are more than a save may have")
    assert member.held.left
    assert member.held.list() == ()


def test_ranks_that_save_again_under_one_name_are_told_to_name_the_step(
    member: Member, capsys: pytest.CaptureFixture[str]
) -> None:
    (member.root / "rank0.pt").write_bytes(b"part")
    says(capsys, "put the step into the name")
    assert member.held.list() == ()


def test_a_link_that_leaves_the_directory_is_not_part_of_a_save(member: Member, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (member.root / "out.pt").symlink_to(tmp_path / "secret")
    (member.root / "last.pt").symlink_to("step-5.pt")
    (member.root / "step-5.pt").write_bytes(b"whole")
    save = until(member.newest)
    assert [file.path for file in member.held.get(save.id).files] == ["last.pt", "step-5.pt"]  # type: ignore[union-attr]


def test_a_directory_that_is_removed_does_no_harm(member: Member) -> None:
    (member.root / "latest.pt").write_bytes(b"first")
    until(member.newest)
    (member.root / "latest.pt").unlink()
    time.sleep(0.6)  # two scans
    (member.root / "latest.pt").write_bytes(b"second")
    until(lambda: len(member.peer.list()) == 2)


def _sparse(path: Path, size: int) -> None:
    """A file of this size that takes no room; to read it takes as long as to read any other."""
    with path.open("wb") as file:
        file.truncate(size)


TERABYTE = 10**12


def test_a_directory_at_rest_is_read_in_a_hundredth_of_the_time(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses, cost = list[float](), 0.01
    read, wait = directory.read, RenameWatch.wait

    def slowly(root: Path, *opened: set[tuple[int, int]]) -> list[SeenFile]:
        time.sleep(cost)
        return read(root, *opened)

    def briefly(watch: RenameWatch, seconds: float) -> None:
        pauses.append(seconds)
        wait(watch, min(seconds, _SCAN))

    monkeypatch.setattr(directory, "read", slowly)
    monkeypatch.setattr(RenameWatch, "wait", briefly)
    until(lambda: max(pauses, default=0.0) >= 100 * cost)
    (member.root / "latest.pt").write_bytes(b"first")
    until(member.newest)


def test_a_file_larger_than_the_memory_is_not_read(member: Member) -> None:
    _sparse(member.root / "latest.pt", TERABYTE)
    until(lambda: member.watcher.problem)
    assert member.watcher.problem.startswith("CheckpointMemoryFull: ")
    member.watcher.end(clean=True)
    assert (member.held.list(), member.held.left) == ((), True)


def test_a_save_that_takes_too_long_to_read_does_not_keep_the_agent_from_its_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece takes long, so that a copy that nothing ends does not fill the disk."""
    read = os.pread

    def slowly(number: int, most: int, offset: int) -> bytes:
        time.sleep(0.2)
        return read(number, most, offset)

    monkeypatch.setattr(os, "pread", slowly)
    member = Member(tmp_path, 3 * TERABYTE, patience=(30, 1))
    try:
        _sparse(member.root / "latest.pt", TERABYTE)
        member.watcher.end(clean=True)
        assert "the last checkpoint is not kept" in member.watcher.problem
        (member.root / "latest.pt").unlink()
        member.begin(2, 2)
        (member.root / "latest.pt").write_bytes(b"second")
        until(lambda: [save.id.round.number for save in member.held.list()] == [2])
    finally:
        member.close()


def test_a_directory_that_hangs_does_not_keep_the_agent_from_its_coordinator(tmp_path: Path) -> None:
    member = Member(tmp_path, 10**6, patience=(1, 30))
    try:
        with held_by_another_thread(member.watcher._lock):
            member.watcher.copy_no_more()
            member.watcher.end(clean=True)
            assert "has not answered" in member.watcher.problem
            with pytest.raises(TimeoutError):
                member.begin(2, 2)
        member.begin(3, 2)
        (member.root / "latest.pt").write_bytes(b"third")
        until(lambda: [save.id.round.number for save in member.held.list()] == [3])
    finally:
        member.close()


@pytest.mark.parametrize("kind", ["a pipe", "a link", "a folder"])
def test_what_takes_the_place_of_a_file_keeps_no_reader_waiting(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "latest.pt"
    (tmp_path / "other").write_bytes(b"other")
    match kind:
        case "a pipe":
            os.mkfifo(place)
        case "a link":
            place.symlink_to(tmp_path / "other")
        case "a folder":
            place.mkdir()
    with pytest.raises(OSError, match=r"latest\.pt"):
        open_file(place)
