"""What a held save costs, and what it is worth once the script saves again."""

import os
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.saves import directory
from pytorchjob_agent.saves.held import HeldSaves
from pytorchjob_agent.saves.held_saves import SaveId, complete
from pytorchjob_agent.saves.manifest import Manifest
from pytorchjob_agent.saves.naming import unit_of
from pytorchjob_agent.saves.recognition import SeenFile
from pytorchjob_agent.saves.taking import Bursts, OnPiece, Replacing, Taking, Writer

SIZE = 1000
Save = Callable[[Path, int], None]


def in_place(root: Path, step: int) -> None:
    (root / "latest.pt").write_bytes(bytes([step]) * SIZE)


def by_rename(root: Path, step: int) -> None:
    (root / "new").write_bytes(bytes([step]) * SIZE)
    os.replace(root / "new", root / "latest.pt")


def numbered(root: Path, step: int) -> None:
    (root / f"step-{step}.pt").write_bytes(bytes([step]) * SIZE)
    (root / f"step-{step - 1}.pt").unlink(missing_ok=True)


def in_turn(root: Path, step: int) -> None:
    (root / f"state-{step % 2}.pt").write_bytes(bytes([step]) * SIZE)


def last_and_best(root: Path, step: int) -> None:
    (root / "last.pt").write_bytes(bytes([step]) * SIZE)
    if step % 2:
        (root / "best.pt").write_bytes(bytes([step]) * SIZE)


class AnyFile(Bursts):
    """Awaits nothing: the tables are about what is held, not about what a script saves together."""

    def is_whole(self, changed: Collection[str], now: float, *, ended: bool = False) -> bool:
        return True


class Script:
    """A script that saves, and its agent's memory."""

    def __init__(self, root: Path, save: Save, limit: int = 10**6) -> None:
        self.root, self._save, self._step = root, save, 0
        self.held = HeldSaves(root, "job", limit)
        self._taking = Taking(self.held, Writer("job", RoundId(1, 1), 0, 1, 1), {}, AnyFile(), Replacing())

    def save(self) -> None:
        self._step += 1
        self._save(self.root, self._step)

    def take(self, on_piece: OnPiece = lambda _: None) -> None:
        assert self._taking.take({file.path: (file,) for file in directory.read(self.root)}, on_piece) is not None

    def bytes_held(self) -> int:
        """The bytes beside the script's own files."""
        own = {file.inode for file in directory.read(self.root)}
        files = [path.stat() for path in self.held.folder.glob("*/[0-9]*")]
        return sum({file.st_ino: file.st_size for file in files if file.st_ino not in own}.values())


@pytest.mark.parametrize("save", [in_place, by_rename, numbered, in_turn, last_and_best])
@pytest.mark.parametrize("saves", [1, 2, 3, 4])
def test_a_held_save_outlives_the_start_of_the_next_one(save: Save, saves: int, tmp_path: Path) -> None:
    script = Script(tmp_path, save)
    for _ in range(saves):
        script.save()
        script.take()
    newest = script.held.list()[0].id
    script.save()
    assert newest in [each.id for each in script.held.list()]


@pytest.mark.parametrize(
    ("save", "files"),
    [
        pytest.param(by_rename, 1, id="replaced: the former save alone, whose name is gone"),
        pytest.param(numbered, 1, id="numbered: the same"),
        pytest.param(in_place, 2, id="overwritten: both saves that are kept"),
    ],
)
def test_copies_cost_memory_only_where_the_script_overwrites(save: Save, files: int, tmp_path: Path) -> None:
    script = Script(tmp_path, save)
    for _ in range(4):
        script.save()
        script.take()
    assert script.bytes_held() == files * SIZE


def test_a_file_that_does_not_change_is_copied_once(tmp_path: Path) -> None:
    script = Script(tmp_path, in_place)
    (tmp_path / "config.json").write_bytes(b"c" * 7 * SIZE)
    for _ in range(3):
        script.save()
        script.take()
    assert script.bytes_held() == 9 * SIZE


@pytest.mark.parametrize("saves", [1, 3], ids=["copied", "linked"])
def test_a_file_that_is_replaced_while_it_is_read_is_held(saves: int, tmp_path: Path) -> None:
    script = Script(tmp_path, by_rename)
    for _ in range(saves - 1):
        script.save()
        script.take()
    script.save()
    script.take(lambda _: script.save())
    (newest, *_) = script.held.list()
    manifest = script.held.get(newest.id)
    assert manifest is not None
    assert script.held.path(manifest, 0).read_bytes() == bytes([saves]) * SIZE


def test_without_room_for_a_copy_the_scripts_own_file_is_held(tmp_path: Path) -> None:
    script = Script(tmp_path, in_place, limit=SIZE + SIZE // 2)
    script.save()
    script.take()
    assert (len(script.held.list()), script.bytes_held()) == (1, 0)


def test_a_save_that_the_script_deletes_is_in_no_later_one(tmp_path: Path) -> None:
    script = Script(tmp_path, numbered)
    script.save()
    script.take()
    (tmp_path / "step-2.pt").write_bytes(b"diverged")
    script.take()
    (tmp_path / "step-2.pt").unlink()
    script.take()
    newest = script.held.get(script.held.list()[0].id)
    assert newest is not None
    assert [file.path for file in newest.files] == ["step-1.pt"]


@pytest.mark.parametrize("change", ["an old part is deleted", "a table is written"])
def test_a_save_in_which_each_rank_has_a_part_is_never_whole_without_the_others(change: str, tmp_path: Path) -> None:
    held = HeldSaves(tmp_path, "job", 10**6)
    for step in (200, 300):
        (tmp_path / f"step{step}_rank0.pt").write_bytes(bytes([step % 256]) * SIZE)
    restored = units(tmp_path)
    taking = Taking(held, Writer("job", RoundId(1, 2), 0, 2, 2), restored, AnyFile())
    if change == "a table is written":
        (tmp_path / "table.json").write_text("{}")
    else:
        (tmp_path / "step200_rank0.pt").unlink()
    taken = taking.take(units(tmp_path))
    assert taken is not None
    assert not list(complete([taken.held()]))


def test_parts_of_the_newest_whole_save_stay_until_there_is_a_newer_one(tmp_path: Path) -> None:
    held = HeldSaves(tmp_path, "job", 10**6)

    def keep(owner: int, number: int, step: int) -> None:
        held.keep(Manifest("job", SaveId(RoundId(1, 1), owner, number), (), 2, f"step-{step}"), held.new_folder())

    def whole() -> list[str]:
        return [choice.label for choice in complete(held.list())]

    keep(0, 1, 200)
    keep(1, 1, 200)
    for number, step in ((2, 300), (3, 300), (4, 400), (5, 500)):  # the second one of 300 has deleted a file
        keep(0, number, step)
        assert whole() == ["step-200"]
    keep(1, 2, 400)
    assert whole() == ["step-400"]
    assert sorted((save.id.owner, save.label) for save in held.list()) == [
        (0, "step-400"),
        (0, "step-500"),
        (1, "step-200"),
        (1, "step-400"),
    ]


def units(root: Path) -> dict[str, tuple[SeenFile, ...]]:
    files = directory.read(root)
    return {unit_of(file.path): (file,) for file in files}
