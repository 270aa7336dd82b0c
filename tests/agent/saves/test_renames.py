"""Renames in a real directory, as the kernel tells of them, and events as no test can make the kernel send them."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytorchjob_agent.saves import renames
from pytorchjob_agent.saves.rename_watch import RenameWatch
from pytorchjob_agent.saves.renames import Renamed, RenameEvent, Renames


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root" / "old").mkdir(parents=True)
    (tmp_path / "root" / ".pytorchjob-fence").mkdir()
    return tmp_path / "root"


@pytest.fixture
def watch(root: Path) -> Iterator[RenameWatch]:
    made = RenameWatch(root)
    yield made
    made.close()


def write(path: Path) -> None:
    path.write_text("words")


def into_place(root: Path) -> None:
    write(root / "a.pt.tmp")
    os.replace(root / "a.pt.tmp", root / "a.pt")


def in_a_folder(root: Path) -> None:
    write(root / "old" / ".a.pt")
    os.replace(root / "old" / ".a.pt", root / "old" / "a.pt")


def to_another_folder(root: Path) -> None:
    write(root / "a.pt.tmp")
    os.replace(root / "a.pt.tmp", root / "old" / "a.pt")


def in_two_steps(root: Path) -> None:
    into_place(root)
    os.replace(root / "a.pt", root / "b.pt")


def in_place(root: Path) -> None:
    write(root / "a.pt")


def written_again(root: Path) -> None:
    into_place(root)
    write(root / "a.pt")


def replaced_again(root: Path) -> None:
    written_again(root)
    into_place(root)


def from_an_ordinary_name(root: Path) -> None:
    write(root / "new")
    os.replace(root / "new", root / "a.pt")


def to_a_temporary_name(root: Path) -> None:
    write(root / "a.pt.tmp")
    os.replace(root / "a.pt.tmp", root / "b.pt.tmp")


def from_outside(root: Path) -> None:
    write(root.parent / "outside" / "a.pt")
    os.replace(root.parent / "outside" / "a.pt", root / "a.pt")


def from_the_fence(root: Path) -> None:
    write(root / ".pytorchjob-fence" / "a.pt")
    os.replace(root / ".pytorchjob-fence" / "a.pt", root / "a.pt")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (into_place, ["a.pt"]),
        (in_a_folder, ["old/a.pt"]),
        (to_another_folder, ["old/a.pt"]),
        (in_two_steps, ["b.pt"]),
        (replaced_again, ["a.pt"]),
        (from_outside, ["a.pt"]),
        (from_the_fence, ["a.pt"]),
        (in_place, []),
        (written_again, []),
        (from_an_ordinary_name, []),
        (to_a_temporary_name, []),
    ],
)
def test_files_renamed_into_place(
    root: Path, watch: RenameWatch, change: Callable[[Path], None], found: list[str]
) -> None:
    change(root)
    renamed = watch.take()
    files = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    assert [file for file in files if renamed.how(file) == ""] == found
    assert watch.take() == Renamed(), "each rename is seen once"


def make_folder(root: Path, watch: RenameWatch) -> None:
    """What a library does that writes a folder: the watch follows, because this takes a while."""
    (root / "tmp-step-5" / "model").mkdir(parents=True)
    watch.take()
    write(root / "tmp-step-5" / "a.pt")
    write(root / "tmp-step-5" / "model" / "b.pt")
    os.replace(root / "tmp-step-5", root / "step-5")


def test_a_folder_renamed_into_place_has_its_files(root: Path, watch: RenameWatch) -> None:
    make_folder(root, watch)
    renamed = watch.take()
    assert (renamed.how("step-5/a.pt"), renamed.how("step-5/model/b.pt")) == ("step-5", "step-5")
    assert (renamed.how("step-50/a.pt"), renamed.how("a.pt")) == (None, None)


def test_what_is_written_to_a_renamed_folder_is_not_renamed(root: Path, watch: RenameWatch) -> None:
    make_folder(root, watch)
    write(root / "step-5" / "model" / "b.pt")
    renamed = watch.take()
    assert (renamed.how("step-5/a.pt"), renamed.how("step-5/model/b.pt")) == ("step-5", None)


def test_a_folder_that_was_not_watched_before_may_have_been_written_to_since(root: Path, watch: RenameWatch) -> None:
    (root / "tmp-step-5").mkdir()
    write(root / "tmp-step-5" / "a.pt")
    os.replace(root / "tmp-step-5", root / "step-5")
    write(root / "step-5" / "b.pt")
    renamed = watch.take()
    assert (renamed.how("step-5/a.pt"), renamed.how("step-5/b.pt")) == (None, None)


def test_the_folders_name_that_counts_is_the_last(root: Path, watch: RenameWatch) -> None:
    make_folder(root, watch)
    os.replace(root / "step-5", root / "step-6")
    write(root / "step-6" / "c.pt.tmp")
    os.replace(root / "step-6" / "c.pt.tmp", root / "step-6" / "c.pt")
    renamed = watch.take()
    assert (renamed.how("step-6/a.pt"), renamed.how("step-6/c.pt")) == ("step-6", "")


def test_a_directory_that_is_made_again_is_watched_again(tmp_path: Path) -> None:
    watch = RenameWatch(tmp_path / "later")
    for _ in range(2):
        (tmp_path / "later").mkdir()
        watch.take()
        into_place(tmp_path / "later")
        assert watch.take().how("a.pt") == ""
        (tmp_path / "later" / "a.pt").unlink()
        (tmp_path / "later").rmdir()
        watch.take()
    watch.close()


def test_a_rename_wakes_the_reader(root: Path, watch: RenameWatch) -> None:
    writer = threading.Timer(0.05, into_place, (root,))
    writer.start()
    watch.wait(3600)
    assert watch.take().how("a.pt") == ""
    writer.join()


def test_another_thread_wakes_the_reader(watch: RenameWatch) -> None:
    watch.wake()
    watch.wait(3600)
    watch.wait(0.01)  # one call ends one wait


def test_without_inotify_nothing_is_seen(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    watch = RenameWatch(root)
    into_place(root)
    watch.wait(0.01)
    assert watch.take() == Renamed()
    watch.close()


def event(bits: int, name: str = "", cookie: int = 0, watch: int = 1) -> RenameEvent:
    return RenameEvent(watch, bits, cookie, name)


def following(*events: RenameEvent) -> Renames:
    found = Renames()
    found.add(1, "")
    found.follow(events)
    return found


def test_events_that_the_kernel_lost_leave_nothing_to_trust() -> None:
    """A write after the rename may be among them."""
    moved = (event(renames.MOVED_FROM, "a.tmp", 7), event(renames.MOVED_TO, "a.pt", 7))
    assert following(*moved).any()
    assert not following(*moved, event(renames.OVERFLOWED, watch=-1)).any()


def test_the_two_events_of_a_rename_may_be_read_one_by_one() -> None:
    found = following(event(renames.MOVED_FROM, "a.pt.copy", 7))
    found.follow([event(renames.MOVED_TO, "b.pt", 7)])
    assert not found.any(), "its old name was an ordinary one"


def test_files_that_leave_the_directory_are_forgotten_one_day() -> None:
    found = following(*(event(renames.MOVED_FROM, "a.pt", number) for number in range(1, 5001)))
    assert len(found._left) < 5000


def test_events_of_a_folder_without_a_watch_are_left_alone() -> None:
    assert not following(event(renames.REMOVED), event(renames.MOVED_TO, "a.pt", 7)).any()
    assert not following(event(renames.MOVED_TO, "a.pt", 7, watch=2)).any()
