"""The guarded writer and reader of torch.distributed.checkpoint, with torch's own save and load."""

from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from pytorchjob_agent.checkpoint.distributed import GuardedReader, GuardedWriter
from pytorchjob_agent.checkpoint.fence import FOLDER, FencedError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:torch.distributed is (disabled|unavailable)"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),  # torch 2.4 about itself
    pytest.mark.filterwarnings("ignore:You are using `torch.load`:FutureWarning"),
]


def enter(monkeypatch: pytest.MonkeyPatch, round_: str) -> None:
    monkeypatch.setenv("PYTORCHJOB_JOB", "job-a" if round_ else "")
    monkeypatch.setenv("PYTORCHJOB_ROUND_ID", round_)


def put(path: Path, value: float) -> None:
    state = {"weight": torch.full((4,), value), "step": int(value)}
    dcp.save(state, checkpoint_id=path, storage_writer=GuardedWriter(path))


def get(path: Path) -> float:
    state = {"weight": torch.zeros(4), "step": 0}
    dcp.load(state, checkpoint_id=path, storage_reader=GuardedReader(path))
    assert state["step"] == int(state["weight"][0])
    return float(state["weight"][0])


@pytest.mark.parametrize("round_", [pytest.param("3.7", id="in a round"), pytest.param("", id="outside of a job")])
def test_what_was_saved_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, round_: str) -> None:
    enter(monkeypatch, round_)
    for value in (1.0, 2.0):  # the second one replaces the first
        put(tmp_path / "step", value)
        assert get(tmp_path / "step") == value
    assert {entry.name for entry in tmp_path.iterdir()} == {"step"} | ({FOLDER} if round_ else set())


def test_a_superseded_round_saves_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, "3.7")
    put(tmp_path / "step-1", 1.0)
    enter(monkeypatch, "3.8")
    assert get(tmp_path / "step-1") == 1.0
    enter(monkeypatch, "3.7")
    with pytest.raises((FencedError, dcp.api.CheckpointException), match=r"round 3\.8 of this job has taken it over"):
        put(tmp_path / "step-2", 2.0)
    with pytest.raises(FencedError):
        get(tmp_path / "step-1")
    assert {entry.name for entry in tmp_path.iterdir()} == {"step-1", FOLDER}


def test_one_writer_serves_many_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, "3.7")
    writer = GuardedWriter(tmp_path / "unused")
    for step in (1, 2):
        dcp.save({"weight": torch.ones(step)}, checkpoint_id=tmp_path / f"step-{step}", storage_writer=writer)
    assert {entry.name for entry in tmp_path.iterdir()} == {"step-1", "step-2", FOLDER}
