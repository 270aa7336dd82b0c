"""Which round may save in a guarded directory, whatever the others do at the same time."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytorchjob_agent.checkpoint.fence import FOLDER, FencedError, FencedWriter, SaveFence, save_into

OLD, NEW = FencedWriter("job-a", (3, 7, 0)), FencedWriter("job-a", (3, 8, 0))
AGREED, NEXT_TERM = FencedWriter("job-a", (3, 7, 1)), FencedWriter("job-a", (4, 1, 0))
OTHER = FencedWriter("job-b", (1, 1, 0))


def begin(directory: Path, writer: FencedWriter, text: str = "", *, loads: bool = False) -> Callable[[], None]:
    """Write a checkpoint up to the last step, and return that step."""
    fence = SaveFence(directory, writer)
    new = fence.take_over(loads=loads) / f"new-{os.urandom(4).hex()}"
    new.write_text(text or str(writer))
    return lambda: fence.commit(new, directory / "checkpoint")


def text(directory: Path) -> str:
    return (directory / "checkpoint").read_text()


@pytest.mark.parametrize("later", [pytest.param(writer, id=str(writer)) for writer in (AGREED, NEW, NEXT_TERM)])
def test_once_a_later_round_has_taken_over_no_earlier_one_saves(tmp_path: Path, later: FencedWriter) -> None:
    begin(tmp_path, OLD)()
    under_way = begin(tmp_path, OLD)
    begin(tmp_path, later)
    for late in (under_way, lambda: begin(tmp_path, OLD)()):
        with pytest.raises(
            FencedError, match=rf"round 3\.7 of job job-a may not use .*: round {later} of this job has"
        ):
            late()
    assert text(tmp_path) == "3.7"
    begin(tmp_path, later)()
    assert text(tmp_path) == str(later)


def test_a_round_saves_again_and_again_from_several_processes(tmp_path: Path) -> None:
    first, second = begin(tmp_path, OLD, "a"), begin(tmp_path, OLD, "b")
    second()
    first()
    assert text(tmp_path) == "a"


def test_rounds_are_compared_as_numbers(tmp_path: Path) -> None:
    begin(tmp_path, FencedWriter("job-a", (9, 99, 9)))
    begin(tmp_path, FencedWriter("job-a", (10, 1, 0)))()
    with pytest.raises(FencedError):
        begin(tmp_path, FencedWriter("job-a", (9, 100, 0)))
    assert text(tmp_path) == "10.1"


def test_another_job_takes_over_when_it_loads_and_never_by_a_save(tmp_path: Path) -> None:
    begin(tmp_path, OLD)()
    with pytest.raises(FencedError, match="it belongs to job job-a; load from it first"):
        begin(tmp_path, OTHER)
    begin(tmp_path, OTHER, loads=True)()
    for loads in (False, True):
        with pytest.raises(FencedError, match="job job-b has taken it over"):
            begin(tmp_path, NEXT_TERM, loads=loads)
    assert text(tmp_path) == "1.1"


def test_a_handle_of_a_superseded_rounds_folder_writes_nothing_either(tmp_path: Path) -> None:
    """A client of NFS keeps such handles: a folder that was only renamed would still accept files by them."""
    work = SaveFence(tmp_path, OLD).take_over(loads=False)
    handle = os.open(work, os.O_RDONLY)
    try:
        (work / "new").write_text("late")
        begin(tmp_path, NEW)()
        with pytest.raises(FileNotFoundError):
            os.rename("new", tmp_path / "checkpoint", src_dir_fd=handle)
        with pytest.raises(FileNotFoundError):
            os.open("another", os.O_CREAT | os.O_WRONLY, dir_fd=handle)
    finally:
        os.close(handle)
    assert text(tmp_path) == "3.8"


def test_a_folder_replaces_an_older_folder(tmp_path: Path) -> None:
    for number in ("1", "2"):
        fence = SaveFence(tmp_path, OLD)
        new = fence.take_over(loads=False) / "new"
        new.mkdir()
        (new / "shard").write_text(number)
        fence.commit(new, tmp_path / "step-100")
    assert (tmp_path / "step-100/shard").read_text() == "2"
    assert not list((tmp_path / FOLDER).rglob("*replaced*"))


def test_a_folder_that_was_moved_aside_by_a_process_that_died_comes_back(tmp_path: Path) -> None:
    work = SaveFence(tmp_path, OLD).take_over(loads=False)
    aside = work / "step-100.replaced-0123"
    aside.mkdir()
    (aside / "shard").write_text("good")
    SaveFence(tmp_path, NEW).take_over(loads=False)
    assert (tmp_path / "step-100/shard").read_text() == "good"


def test_revoked_rounds_are_forgotten_after_a_while(tmp_path: Path) -> None:
    for number in range(40):
        SaveFence(tmp_path, FencedWriter("job-a", (1, number, 0))).take_over(loads=False)
    assert len(list((tmp_path / FOLDER / "rounds").iterdir())) == 32


def test_a_save_that_fails_for_another_reason_says_so(tmp_path: Path) -> None:
    fence = SaveFence(tmp_path, OLD)
    with pytest.raises(FileNotFoundError):
        fence.commit(fence.take_over(loads=False) / "never-written", tmp_path / "checkpoint")


def test_without_a_fence_a_save_is_still_one_step(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("1")
    save_into(tmp_path / "new", tmp_path / "checkpoint")
    assert text(tmp_path) == "1"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({}, None, id="outside of a job"),
        pytest.param({"PYTORCHJOB_JOB": "a"}, None, id="a job without rounds"),
        pytest.param({"PYTORCHJOB_JOB": "a", "PYTORCHJOB_ROUND_ID": "3.7"}, FencedWriter("a", (3, 7, 0)), id="a round"),
        pytest.param(
            {"PYTORCHJOB_JOB": "a", "PYTORCHJOB_ROUND_ID": "3.7.2"}, FencedWriter("a", (3, 7, 2)), id="an attempt"
        ),
    ],
)
def test_the_round_comes_from_the_environment(env: dict[str, str], expected: FencedWriter | None) -> None:
    assert FencedWriter.from_env(env) == expected


@pytest.mark.parametrize("text", ["3", "3.x", "3.7.1.1", "-1.2", "\u0663.7"])
def test_an_id_that_no_agent_writes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the id of a round"):
        FencedWriter.from_env({"PYTORCHJOB_JOB": "a", "PYTORCHJOB_ROUND_ID": text})
