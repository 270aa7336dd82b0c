"""Ranks with directories of their own save one checkpoint: what each pod's agent sees, whatever operation is last."""

import shutil
from pathlib import Path

import pytest
import torch

from pytorchjob_agent.checkpoint import steps
from pytorchjob_agent.checkpoint.distributed import _needed
from pytorchjob_agent.checkpoint.fence import FOLDER
from pytorchjob_agent.saves import directory
from pytorchjob_agent.saves.recognition import Local, Recognition, Scan
from tests.torch.saved_parts import Ranks, killed_after

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),  # torch 2.4 about itself
]
LAYOUTS = [
    pytest.param("aa", id="both ranks in one directory"),
    pytest.param("ab", id="each rank in its own"),
    pytest.param("aabb", id="two ranks in each directory"),
    pytest.param("baab", id="ranks that share a directory are no neighbours"),
]


def enter(monkeypatch: pytest.MonkeyPatch, round_: str) -> None:
    monkeypatch.setenv("PYTORCHJOB_JOB", "job-a" if round_ else "")
    monkeypatch.setenv("PYTORCHJOB_ROUND_ID", round_)


def folders(root: Path, layout: str) -> list[Path]:
    for name in set(layout):
        (root / name).mkdir(parents=True)
    return [root / name for name in layout]


def complete(folder: Path) -> set[str]:
    """The units that the agent of this directory takes as complete, at its first scan after the death of workers."""
    found = Recognition(Local(first=1)).end(Scan(tuple(directory.read(folder)), 0.0, alive=False), clean=False)
    return set(found.units)


def chosen(directories: list[Path]) -> int:
    """The step that all ranks load."""
    found = steps.choose([steps.find(each, _needed) for each in directories])
    return -1 if found is None else found.step


@pytest.mark.parametrize("round_", ["", "3.7"], ids=["outside of a job", "in a round"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_directory_has_its_part_at_once_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, round_: str
) -> None:
    enter(monkeypatch, round_)
    ranks = Ranks(folders(tmp_path, layout))
    ranks.save("step-1")
    for each in ranks.directories:
        assert {path.name for path in each.iterdir()} == {"step-1"} | ({FOLDER} if round_ else set())
        assert complete(each) == {"step-1"}
    for rank, each in enumerate(ranks.directories):
        assert (each / "step-1" / f"__{rank}_0.distcp").exists()
        assert (each / "step-1" / ".metadata").exists() == (each == ranks.directories[0])
    assert chosen([*ranks.directories]) == 1


@pytest.mark.parametrize(
    ("layout", "round_"),
    [
        *(pytest.param(*each.values, "3.7", id=each.id) for each in LAYOUTS),
        pytest.param("ab", "", id="outside of a job"),
    ],
)
def test_a_save_that_is_cut_between_any_two_operations_is_never_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, round_: str
) -> None:
    enter(monkeypatch, round_)
    for cut in range(1000):
        root = tmp_path / str(cut)
        ranks = Ranks(folders(root, layout))
        ranks.save("step-1")
        with killed_after(cut, root) as killer:
            ranks.save("step-2")
        seen = [complete(each) for each in ranks.directories]
        assert all("step-1" in units for units in seen)
        whole = "step-2" in seen[0]
        assert chosen([*ranks.directories]) == (2 if whole else 1)
        if whole:
            assert all("step-2" in units for units in seen), "where rank 0 saves it appears last"
        ranks.save("step-2")
        assert chosen([*ranks.directories]) == 2
        shutil.rmtree(root)
        if not killer.killed:
            assert whole
            break
    assert 12 < cut < 1000


def test_a_rank_without_data_leaves_its_marker_alone(tmp_path: Path) -> None:
    ranks = Ranks(folders(tmp_path, "ab"))
    ranks.save("step-1", [{"weight": torch.ones(4)}, {}])
    assert [path.name for path in (tmp_path / "b" / "step-1").iterdir()] == ["__1_0.whole"]
    assert complete(tmp_path / "b") == {"step-1"}
    assert chosen([*ranks.directories]) == 1


def test_parts_of_two_rounds_are_not_of_one_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, "3.7")
    ranks = Ranks(folders(tmp_path, "ab"))
    ranks.save("step-1")
    ranks.save("step-2")
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "a", before)
    enter(monkeypatch, "3.8")
    ranks.save("step-2")
    assert chosen([tmp_path / "a", tmp_path / "b"]) == 2
    assert chosen([before, tmp_path / "b"]) == 1


@pytest.mark.parametrize("missing", ["__0_0.distcp", "__1_0.distcp", ".metadata"])
def test_a_folder_into_which_a_copy_was_cut_is_never_loaded(tmp_path: Path, missing: str) -> None:
    Ranks(folders(tmp_path, "aa")).save("step-1")
    (tmp_path / "a" / "step-1" / missing).unlink()
    assert chosen([tmp_path / "a"]) == -1
    if missing != ".metadata":  # the other pods never have it before a round restores it
        assert complete(tmp_path / "a") == set()
