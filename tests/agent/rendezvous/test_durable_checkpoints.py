"""Real agents with a durable directory: all pods are lost with their memory; the storage hangs, or is away."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from pytorchjob_agent.contract.checkpoint_rules import CHECKPOINT
from pytorchjob_agent.saves.durable import DurableSaves
from tests.waiting import until

from .conftest import JOB, Job
from .saving import durable, lose, rules, start

pytestmark = [pytest.mark.torch]
RARELY = 3600
"""An interval, in seconds, in which only the first save becomes durable."""


def names(job: Job) -> set[str]:
    """The files of complete saves in the durable directory."""
    return {
        f"{each.manifest.id.owner}:{file.path}"
        for each in DurableSaves(durable(job), JOB).stored()
        for file in each.manifest.files
    }


@pytest.fixture
def volume(job: Job) -> Path:
    """A job whose durable volume is mounted."""
    job.env["STEPS"] = "90"
    job.expected = {}
    durable(job).parent.mkdir()
    return durable(job)


@pytest.mark.parametrize(
    ("save", "last"),
    [
        pytest.param("DCP", {"0:step-80/__0_0.distcp", "1:step-80/__1_0.distcp"}, id="DCP"),
        pytest.param("ranks", {"0:step-80/rank0.pt", "1:step-80/rank1.pt"}, id="each rank", marks=pytest.mark.long),
    ],
)
def test_all_pods_lost_with_their_memory_cost_no_durable_save(
    job: Job, volume: Path, save: str, last: set[str]
) -> None:
    pods = [start(job, index, save, interval=1) for index in range(2)]
    pods[0].says("saved 80")
    until(lambda: names(job) >= last, story=lambda: f"{names(job)} {pods[0].text()} {pods[1].text()}")
    for index in range(2):
        lose(job, index)
    pods = [start(job, index, save, uid="v", interval=1) for index in range(2)]
    for pod in pods:
        pod.says("starts from step 80\n")
    assert job.end() == [0, 0]


def test_a_part_in_memory_and_one_on_durable_storage_are_one_save(job: Job, volume: Path) -> None:
    """Pods keep no copies, and the storage lacks rank 0's part of the last save: pod 1 is lost with its memory."""
    pods = [start(job, index, "ranks", interval=1, **without_copies(job, index)) for index in range(2)]
    pods[0].says("saved 80")
    until(lambda: names(job) >= {"0:step-80/rank0.pt", "1:step-80/rank1.pt"}, story=lambda: f"{names(job)}")
    for each in DurableSaves(volume, JOB).stored():
        if each.manifest.id.owner == 0 and "step-80/rank0.pt" in {file.path for file in each.manifest.files}:
            shutil.rmtree(each.folder)
    lose(job, 1)
    new = start(job, 1, "ranks", uid="v", interval=1, **without_copies(job, 1, "v"))
    for pod in (pods[0], new):
        pod.says("starts from step 80\n")
    assert job.end() == [0, 0]


def without_copies(job: Job, index: int, uid: str = "u") -> dict[str, str]:
    """The variable of a pod whose saves have no copies at peers."""
    return {CHECKPOINT: rules(job, index, uid, interval=1, copies=0)}


def test_a_job_succeeds_once_its_last_save_is_durable(job: Job, volume: Path) -> None:
    """The script ends right after its last save, and the interval is far from over."""
    job.env["STEPS"] = "80"
    pods = [start(job, index, "rename", interval=RARELY) for index in range(2)]
    until(lambda: names(job), story=pods[0].text)
    for index in range(2):
        lose(job, index)
    pods = [start(job, index, "rename", uid="v", interval=RARELY) for index in range(2)]
    pods[1].says("starts from step [48]0\n")
    assert job.end() == [0, 0]
    newest = max(DurableSaves(volume, JOB).stored(), key=lambda each: each.manifest.id)
    assert torch.load(newest.file(0))["step"] == 80


def test_storage_that_hangs_delays_no_round_and_is_a_problem_of_the_job(job: Job, volume: Path) -> None:
    pods = [start(job, index, "rename", interval=1) for index in range(2)]
    until(lambda: names(job), story=pods[0].text)
    os.mkdir(volume / "job-1" / "1.1_9_9")
    os.mkfifo(volume / "job-1" / "1.1_9_9" / "manifest.json")  # who opens it waits for ever
    pods[0].says("saved 80")
    os.kill(pods[1].worker(), signal.SIGKILL)
    for pod in pods:
        pod.says("starts from step [48]0\n")
    pods[0].says("has not answered for")
    until(lambda: "CheckpointsNotKept" in str(job.events), story=lambda: str(job.events))
    assert job.end() == [0, 0]


def test_a_volume_that_is_away_is_a_problem_of_the_job_and_training_goes_on(job: Job, volume: Path) -> None:
    volume.parent.rmdir()
    pods = [start(job, index, "rename", interval=1) for index in range(2)]
    pods[0].says("mount the volume there")
    until(lambda: "DurableDirectoryUnusable" in str(job.events), story=lambda: str(job.events))
    pods[0].says("saved 80")
    os.kill(pods[1].worker(), signal.SIGKILL)
    assert job.end() == [0, 0]
