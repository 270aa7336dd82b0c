"""What a training script's `save` and `load` do inside and outside of a round."""

import os
from pathlib import Path

import pytest

from pytorchjob_agent import FencedError, load, save, take_over
from pytorchjob_agent.checkpoint.fence import FOLDER


def enter(monkeypatch: pytest.MonkeyPatch, round_: str, job: str = "job-a") -> None:
    """Be a worker of this round."""
    monkeypatch.setenv("PYTORCHJOB_JOB", job)
    monkeypatch.setenv("PYTORCHJOB_ROUND_ID", round_)


def leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a process outside of a job."""
    monkeypatch.delenv("PYTORCHJOB_JOB", raising=False)
    monkeypatch.delenv("PYTORCHJOB_ROUND_ID", raising=False)


def put(path: Path, text: str) -> None:
    save(path, lambda new: new.write_text(text))


def test_a_load_gives_the_default_or_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, "3.7")
    path = tmp_path / "deep" / "checkpoint"
    assert load(path, Path.read_text) is None
    assert load(path, Path.read_text, "fresh") == "fresh"
    put(path, "1")
    assert load(path, Path.read_text, "fresh") == "1"
    assert sorted(entry.name for entry in path.parent.iterdir()) == [FOLDER, "checkpoint"]


def test_what_was_saved_is_on_the_disk_before_it_has_its_name_and_the_name_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(monkeypatch, "3.7")
    synced, sync = [], os.fsync

    def note(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, (tmp_path / "checkpoint").exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)

    def write(new: Path) -> None:
        new.mkdir()
        (new / "weights").write_text("1")

    save(tmp_path / "checkpoint", write)
    written = {path.stat().st_ino for path in (tmp_path / "checkpoint", tmp_path / "checkpoint" / "weights")}
    assert written <= {inode for inode, named in synced if not named}
    assert (tmp_path.stat().st_ino, True) in synced


def test_a_load_is_enough_to_end_the_saves_of_earlier_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint"
    enter(monkeypatch, "3.8")
    load(path, Path.read_text)
    enter(monkeypatch, "3.7")
    with pytest.raises(FencedError, match=r"round 3\.8 of this job has taken it over"):
        put(path, "late")
    with pytest.raises(FencedError):
        load(path, Path.read_text)
    assert not path.exists()


def test_a_save_during_which_a_later_round_takes_over_has_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(monkeypatch, "3.7")

    def write(new: Path) -> None:
        enter(monkeypatch, "3.8")
        take_over(tmp_path)
        enter(monkeypatch, "3.7")
        new.write_text("late")  # its folder is gone

    with pytest.raises(FencedError, match=r"round 3\.8"):
        save(tmp_path / "checkpoint", write)
    assert not (tmp_path / "checkpoint").exists()


def test_a_save_that_fails_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for round_ in ("", "3.7"):
        enter(monkeypatch, round_)
        put(tmp_path / "checkpoint", "good")
        with pytest.raises(ZeroDivisionError):
            save(tmp_path / "checkpoint", lambda new: new.write_text(str(1 / 0)))
        assert (tmp_path / "checkpoint").read_text() == "good"


def test_outside_of_a_job_a_save_needs_no_fence_and_respects_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(monkeypatch)
    put(tmp_path / "checkpoint", "1")
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]
    enter(monkeypatch, "3.7")
    load(tmp_path / "checkpoint", Path.read_text)
    leave(monkeypatch)
    with pytest.raises(FencedError, match=r"is guarded by a job, .* remove .*pytorchjob-fence"):
        put(tmp_path / "checkpoint", "2")
    assert load(tmp_path / "checkpoint", Path.read_text) == "1", "everyone may read"


@pytest.mark.parametrize("guarded", [True, False], ids=["in a round", "outside of one"])
@pytest.mark.parametrize("folder", [True, False], ids=["a folder", "a file"])
def test_a_save_that_fails_gives_its_place_on_the_disk_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool, folder: bool
) -> None:
    enter(monkeypatch, "3.7") if guarded else leave(monkeypatch)

    def write(new: Path) -> None:
        if folder:
            new.mkdir()
        (new / "part" if folder else new).write_text("half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        save(tmp_path / "checkpoint", write)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() or "checkpoint" in path.name]
