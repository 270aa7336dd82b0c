"""The examples of Hugging Face's Trainer and of Lightning: progress without a changed line, and a resumed run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent.command.install import install
from tests.local.jobs import Run
from tests.local.test_progress import installed

pytestmark = [pytest.mark.torch, pytest.mark.long]


def done(run: Run) -> dict[str, Any]:
    """The status of a run that has succeeded."""
    assert run.wait() == 0, run.out + run.err
    status: dict[str, Any] = json.loads(run.out)["status"]
    return status


@installed("transformers")
@installed("accelerate")
def test_hugging_faces_trainer_shows_its_progress_and_resumes(
    start: Callable[..., Run], example: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    for steps, words in ((20, "resumes from None"), (40, f"resumes from {tmp_path}/checkpoints/checkpoint-20")):
        job = example("hugging-face", CHECKPOINT_DIR=str(tmp_path / "checkpoints"), STEPS=str(steps))
        run = start(job, "-o", "json")
        status = done(run)
        assert [run.err.count(f"rank={rank} world_size=2 {words}\n") for rank in range(2)] == [1, 1]
        progress = status["progress"]
        assert (progress["total"], progress["percent"]) == (steps, 100)
        assert progress["metrics"].keys() >= {"loss", "learning_rate"}
        assert status["columns"]["progress"] == "100%"


@installed("lightning")
def test_lightning_shows_its_progress_and_resumes(
    start: Callable[..., Run], example: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    install(tmp_path / "agent")  # as pip does, or the operator with `inject: true`
    for epochs in (2, 4):
        folder = str(tmp_path / "checkpoints")
        job = example("lightning", CHECKPOINT_DIR=folder, EPOCHS=str(epochs), PYTHONPATH=str(tmp_path / "agent"))
        run = start(job, "-o", "json")
        status = done(run)
        assert ("Restored all states from the checkpoint" in run.err) is (epochs == 4)
        assert "world_size=2 accuracy=" in run.err
        progress = status["progress"]
        assert (progress["step"], progress["total"], progress["percent"]) == (30 * epochs, 30 * epochs, 100)
        assert progress["metrics"].keys() == {"train_loss", "accuracy"}
