"""Saves in the durable directory: what is offered, what a cut leaves, what a later job and a later round find."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytorchjob_agent.checkpoint.fence import FencedError
from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.exchange.file_list import HeldFile
from pytorchjob_agent.saves import durable
from pytorchjob_agent.saves.durable import CHUNK, DurableSaves
from pytorchjob_agent.saves.held import SourceError
from pytorchjob_agent.saves.held_saves import Choice, Parts, SaveId
from pytorchjob_agent.saves.manifest import Manifest
from tests.agent.saves.test_copies import checksum_of

ONE, TWO = RoundId(1, 1), RoundId(1, 2)
Contents = dict[str, bytes]


def made(contents: Contents, number: int = 1, round_: RoundId = ONE, job: str = "job") -> Manifest:
    files = tuple(HeldFile(path, len(data), 10**18, checksum_of(data)) for path, data in contents.items())
    return Manifest(job, SaveId(round_, 0, number), files)


def part(owner: int, number: int, label: str) -> tuple[Manifest, Contents]:
    contents = {f"{label}/rank{owner}.pt": b"part"}
    manifest = made(contents, number)
    return replace(manifest, id=SaveId(ONE, owner, number), writers=2, label=label), contents


def write(
    saves: DurableSaves, manifest: Manifest, contents: Contents, step: Callable[[int], None] = lambda _: None
) -> None:
    data = list(contents.values())
    saves.write(manifest, lambda place, offset: data[place][offset : offset + CHUNK], step)


def choices(saves: DurableSaves) -> list[str]:
    return [f"{save.id.round}/{save.id.owner}/{save.id.number}" for save in durable.offered(saves.stored())]


@pytest.fixture
def saves(tmp_path: Path) -> DurableSaves:
    return DurableSaves(tmp_path / "run-1", "job")


def test_a_save_is_found_with_its_files_under_their_own_names(saves: DurableSaves) -> None:
    contents = {"latest.pt": b"weights", "step-5/rank0.pt": b"", "best": b"b"}
    write(saves, made(contents), contents)
    assert choices(saves) == ["1.1/0/1"]
    assert (saves.root / "job-1" / "1.1_0_1" / "files" / "latest.pt").read_bytes() == b"weights"


def test_a_link_stays_a_link(saves: DurableSaves) -> None:
    manifest = made({"step-5.pt": b"weights"})
    manifest = replace(manifest, files=(*manifest.files, HeldFile("last", 0, 0, "", "step-5.pt")))
    write(saves, manifest, {"step-5.pt": b"weights"})
    assert saves.stored()[0].file(1).read_bytes() == b"weights"


def test_no_file_is_written_through_a_link_of_the_save(saves: DurableSaves, tmp_path: Path) -> None:
    """A manifest with such files is refused before. If one comes all the same, it makes nothing outside."""
    manifest = made({"u/new/x.pt": b"x"})
    link = HeldFile("u", 0, 0, "", str(tmp_path))
    with pytest.raises(OSError, match="leads through"):
        write(saves, replace(manifest, files=(link, *manifest.files)), {"u": b"", "u/new/x.pt": b"x"})
    assert not (tmp_path / "new").exists()


def test_all_of_a_save_is_on_the_storage_before_it_has_its_name(
    saves: DurableSaves, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that loses its power keeps what was brought to the storage, in this order, and nothing else."""
    synced, sync = [], os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    contents = {"a.pt": b"1", "b/c.pt": b"2"}
    write(saves, made(contents), contents)
    *written, last = [re.sub(r"^/.new-1.1_0_1-\w+", "new", path.removeprefix(f"{saves.root}/job-1")) for path in synced]
    assert written[:3] == ["new/files/a.pt", "new/files/b/c.pt", "new/manifest.json"]
    assert {*written[3:]} == {"new", "new/files", "new/files/b"}
    assert last == "", "the folder in which it has its name"


class CutError(BaseException):
    """The machine is gone: nothing is cleared up."""


def test_a_copy_that_is_cut_between_any_two_operations_is_never_offered(tmp_path: Path) -> None:
    contents = {"a.pt": os.urandom(2 * CHUNK + 5), "b/c.pt": b"c"}
    for cut in range(100):
        saves = DurableSaves(tmp_path / str(cut), "job")
        write(saves, made({"a.pt": b"old"}), {"a.pt": b"old"})
        if not cut_after(saves, made(contents, 2), contents, cut):
            break
        found = saves.stored()
        assert choices(saves)[-1] == "1.1/0/1"
        if len(found) == 2:  # the rename was done
            shown = {path: (found[1].folder / "files" / path).read_bytes() for path in contents}
            assert shown == contents
        write(saves, made(contents, 2), contents)
        saves.trim(2)
        assert choices(saves) == ["1.1/0/2", "1.1/0/1"]
        shutil.rmtree(saves.root)
    assert 8 < cut < 100


def cut_after(saves: DurableSaves, manifest: Manifest, contents: Contents, steps: int) -> bool:
    """Copy a save and cut it; False if it was done before."""
    count = 0

    def step(_: int) -> None:
        nonlocal count
        count += 1
        if count > steps:
            raise CutError

    try:
        write(saves, manifest, contents, step)
    except CutError:
        return True
    return False


def test_what_a_cut_has_left_goes_with_the_older_saves(saves: DurableSaves) -> None:
    assert cut_after(saves, made({"a.pt": b"1"}), {"a.pt": b"1"}, 2)
    for number in (2, 3):
        write(saves, made({"a.pt": b"1"}, number), {"a.pt": b"1"})
        saves.trim(2)
    assert sorted(os.listdir(saves.root / "job-1")) == ["1.1_0_2", "1.1_0_3"]


def test_a_file_that_changes_during_the_copy_is_refused(saves: DurableSaves) -> None:
    with pytest.raises(SourceError, match=r"a\.pt has changed"):
        write(saves, made({"a.pt": b"first"}), {"a.pt": b"other"})
    with pytest.raises(SourceError, match=r"a\.pt is shorter"):
        write(saves, made({"a.pt": b"first"}), {"a.pt": b"fir"})
    assert saves.stored() == []
    assert os.listdir(saves.root / "job-1") == []


def test_a_save_with_a_file_that_is_gone_or_shorter_is_not_offered(saves: DurableSaves) -> None:
    for number, harm in enumerate((Path.unlink, lambda path: os.truncate(path, 1))):
        write(saves, made({"a.pt": b"whole"}, number), {"a.pt": b"whole"})
        assert len(saves.stored()) == 1
        harm(saves.stored()[0].file(0))
        assert saves.stored() == []


def test_a_save_with_another_content_is_not_restored(saves: DurableSaves, tmp_path: Path) -> None:
    write(saves, made({"a.pt": b"whole"}), {"a.pt": b"whole"})
    stored = saves.stored()[0]
    stored.file(0).write_bytes(b"wrong")
    with pytest.raises(SourceError, match="is not what was saved"):
        durable.copy_out(stored, 0, tmp_path / "a.pt", lambda _: None)


def test_only_a_save_of_which_all_parts_are_there_is_offered(saves: DurableSaves) -> None:
    for owner, number, label in ((0, 1, "step-5"), (1, 1, "step-5"), (0, 2, "step-6")):
        write(saves, *part(owner, number, label))
    offered = durable.offered(saves.stored())
    assert [(save.label, save.id.owner) for save in offered] == [("step-5", 0)]
    chosen = Choice(ONE, 0, 1, 2, "step-5")
    assert [durable.part(saves.stored(), chosen, owner) is None for owner in (0, 1, 2)] == [False, False, True]


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        pytest.param([], [], id="nothing is there"),
        pytest.param([part(0, 3, "step-5")], [Parts(ONE, 3, 2, "step-5", 0b01)], id="rank 1's part is missing"),
        pytest.param([part(1, 3, "step-5")], [Parts(ONE, 0, 2, "step-5", 0b10)], id="rank 0's part is missing"),
        pytest.param([part(0, 3, "step-5"), part(1, 7, "step-5")], [], id="the save is whole"),
        pytest.param([part(5, 3, "step-5")], [], id="a rank that the save does not have"),
        pytest.param(
            [part(0, number, f"step-{number}") for number in range(1, 7)],
            [Parts(ONE, number, 2, f"step-{number}", 1) for number in (6, 5, 4, 3)],
            id="the newest of many",
        ),
    ],
)
def test_parts_of_incomplete_saves_are_listed(
    saves: DurableSaves, parts: list[tuple[Manifest, Contents]], found: list[Parts]
) -> None:
    for manifest, contents in parts:
        write(saves, manifest, contents)
    assert list(durable.incomplete(saves.stored())) == found


def test_two_complete_saves_stay_and_what_is_newer(saves: DurableSaves) -> None:
    for number in (1, 2, 3, 4):
        for owner in (0, 1) if number < 4 else (0,):
            write(saves, *part(owner, number, f"step-{number}"))
    saves.trim(2)
    names = ["1.1_0_2", "1.1_0_3", "1.1_0_4", "1.1_1_2", "1.1_1_3"]
    assert sorted(os.listdir(saves.root / "job-1")) == names


def test_a_late_copy_of_an_older_round_replaces_nothing(saves: DurableSaves) -> None:
    for number in (1, 2):
        write(saves, made({"a.pt": b"new"}, number, TWO), {"a.pt": b"new"})
    write(saves, made({"a.pt": b"old"}, 9, ONE), {"a.pt": b"old"})
    assert choices(saves) == ["1.2/0/2", "1.2/0/1", "1.1/0/9"]
    saves.trim(2)
    assert choices(saves) == ["1.2/0/2", "1.2/0/1"]


def test_a_later_job_continues_from_the_last_save_of_the_one_before(saves: DurableSaves) -> None:
    for round_, number in ((ONE, 1), (TWO, 2)):
        write(saves, made({"a.pt": b"a"}, number, round_), {"a.pt": b"a"})
    later = DurableSaves(saves.root, "later")
    found = later.stored()
    assert [(each.manifest.job, each.manifest.id.round.term, each.manifest.id.number) for each in found] == [
        ("later", 0, 2)
    ]
    own = made({"a.pt": b"b"}, 1, ONE, "later")
    write(later, own, {"a.pt": b"b"})
    assert choices(later)[0] == "1.1/0/1", "its own save is newer, although the other job had more rounds"


def test_an_earlier_job_copies_nothing_once_a_later_one_has_come(saves: DurableSaves) -> None:
    write(saves, made({"a.pt": b"a"}), {"a.pt": b"a"})
    later = DurableSaves(saves.root, "later")
    later.enter()
    with pytest.raises(FencedError, match="job later has taken it over"):
        write(saves, made({"a.pt": b"b"}, 2), {"a.pt": b"b"})
    assert choices(saves) == ["1.1/0/1"], "its own saves stay readable"
    for number in (1, 2):
        assert os.listdir(saves.root / "job-1"), "one save of the later job does not replace them"
        write(later, made({"a.pt": b"b"}, number, job="later"), {"a.pt": b"b"})
        later.trim(2)
    assert not os.listdir(saves.root / "job-1"), "two saves of the later job replace them"


def test_a_copy_that_a_later_job_overtakes_gets_no_name(saves: DurableSaves) -> None:
    def step(_: int) -> None:
        if [*saves.root.glob("job-1/.new-*/manifest.json")]:
            DurableSaves(saves.root, "later").enter()

    with pytest.raises(FencedError, match="job later has taken it over"):
        write(saves, made({"a.pt": b"a"}), {"a.pt": b"a"}, step)
    assert saves.stored() == []


def test_saves_without_which_a_round_has_begun_stay_for_good(saves: DurableSaves) -> None:
    write(saves, made({"a.pt": b"lost"}), {"a.pt": b"lost"})
    assert saves.spare() == ["job-1/1.1_0_1"]
    assert saves.spare() == []
    for number in (1, 2, 3):
        write(saves, made({"a.pt": b"new"}, number, TWO), {"a.pt": b"new"})
        saves.trim(2)
    assert choices(saves) == ["1.2/0/3", "1.2/0/2", "1.1/0/1"]


def test_a_directory_without_its_volume_is_no_directory(tmp_path: Path) -> None:
    saves = DurableSaves(tmp_path / "mnt" / "run-1", "job")
    assert saves.stored() == []
    with pytest.raises(FileNotFoundError, match="does not exist: mount the volume there"):
        saves.enter()


@pytest.mark.parametrize("name", ["notes.txt", "1.1_0_1", ".new-1.1_0_7-abc", "1.1_0_x"])
def test_what_is_no_save_is_passed_over(saves: DurableSaves, name: str) -> None:
    write(saves, made({"a.pt": b"a"}, 5), {"a.pt": b"a"})
    folder = saves.root / "job-1" / name
    folder.mkdir()
    (folder / "manifest.json").write_text(made({"a.pt": b"a"}, 6).to_json())
    assert choices(saves) == ["1.1/0/5"]
