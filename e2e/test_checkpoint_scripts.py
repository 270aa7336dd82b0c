"""Scripts without shared storage lose a pod with its memory, and learn what an undisturbed run learns."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import elastic, faults, pages
from e2e.conftest import ROOT
from e2e.kubectl import Kubectl, until

FOLDER = "/checkpoints"
CHECKPOINT = {"checkpoint": {"directory": FOLDER, "memory": "256Mi"}}
SCRIPT = (Path(__file__).parent / "plain_training.py").read_text()
STEPS = 160
SLOWLY = """
import os, re, runpy, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook

folder, number, waits_at = os.environ["CHECKPOINT_DIR"], os.environ["NUMBER"], int(os.environ["WAITS_AT"])

def newest():
    return max((int(found[1]) for name in os.listdir(folder) if (found := re.search(number, name))), default=-1)

def step(*_):
    time.sleep(float(os.environ["STEP_SECONDS"]))
    while is_first and 0 < waits_at <= newest():
        time.sleep(1)

is_first = newest() < 0
register_optimizer_step_post_hook(step)
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script whose model is small as if it were a large one: a save is a part of its time, not all of it.

It waits for the fault at a save, however slow the machine is.
"""
LOSSES = [  # how the script saves, who saves, and whose pod is lost
    pytest.param("rank 0", (0,), 0, id="rank 0 saves, and is lost", marks=pytest.mark.long),
    pytest.param("each rank", (0, 1), 0, id="each rank saves, rank 0 is lost", marks=pytest.mark.long),
    pytest.param("each rank", (0, 1), 1, id="each rank saves, rank 1 is lost", marks=pytest.mark.long),
    pytest.param("DCP", (0, 1), 0, id="FSDP2 saves with DCP, rank 0 is lost"),
    pytest.param("DCP", (0, 1), 1, id="FSDP2 saves with DCP, rank 1 is lost", marks=pytest.mark.long),
    pytest.param("three lines", (0, 1), 0, id="FSDP2 saves with three lines, rank 0 is lost"),
    pytest.param("three lines", (0, 1), 1, id="FSDP2 saves with three lines, rank 1 is lost", marks=pytest.mark.long),
]
_LOSS = re.compile(r"step=(\d+) loss=([\d.]+)")
_FROM = re.compile(r"world=2 from=(\d+)")
_HF_LOSS = re.compile(r"'loss': '?([\d.e-]+)")
_MANIFESTS = f"for file in {FOLDER}/.pytorchjob/*/manifest.json; do cat $file; echo; done"


def curve(text: str) -> dict[int, set[str]]:
    """The losses that a log has for each step: more than one where a step was repeated and had another loss."""
    found: dict[int, set[str]] = {}
    for step, loss in _LOSS.findall(text):
        found.setdefault(int(step), set()).add(loss)
    return found


def plain(name: str, save: str, *, pause: float, waits_at: int = 0) -> dict[str, Any]:
    """A job of two workers with the script, which saves in this way."""
    job = elastic.elastic_job(name, 2, train=SCRIPT, agent=CHECKPOINT)
    given = {"FOLDER": FOLDER, "SAVE": save, "STEPS": str(STEPS), "PAUSE": str(pause), "WAITS_AT": str(waits_at)}
    return elastic.with_env(job, given)


def held(kubectl: Kubectl, pod: str, owner: int, number: str) -> int:
    """The largest number in the names of the files that a pod holds of the saves of an owner."""
    lines = kubectl("exec", pod, "--", "sh", "-c", _MANIFESTS, check=False).splitlines()
    manifests = [json.loads(line) for line in lines if line.startswith("{")]
    names = [file[0] for manifest in manifests if manifest["id"][1] == owner for file in manifest["files"]]
    return max((int(found) for name in names for found in re.findall(number, name)), default=0)


def finish(kubectl: Kubectl, job: str) -> None:
    assert "Succeeded" in kubectl.finish(job, 400), kubectl.story(job)


@pytest.mark.parametrize(("save", "owners", "lost"), LOSSES)
def test_a_script_that_loses_a_pod_learns_what_an_undisturbed_run_learns(
    kubectl: Kubectl, save: str, owners: tuple[int, ...], lost: int
) -> None:
    other = f"disturbed-worker-{1 - lost}"
    elastic.submit(kubectl, plain("disturbed", save, pause=0.25, waits_at=STEPS // 2))
    elastic.submit(kubectl, plain("undisturbed", save, pause=0))

    def kept() -> int:
        return min(held(kubectl, other, owner, r"step-(\d+)") for owner in owners)

    until(lambda: kept() >= 40, 300, lambda: f"\n{kubectl.story('disturbed')}")
    faults.force_delete_pod(kubectl, f"disturbed-worker-{lost}")
    finish(kubectl, "disturbed")
    finish(kubectl, "undisturbed")

    stayed, came = elastic.log(kubectl, "disturbed", 1 - lost), elastic.log(kubectl, "disturbed", lost)
    begun = [int(step) for step in _FROM.findall(stayed)]
    assert begun[0] == 0
    assert begun[-1] >= 40
    assert int(_FROM.findall(came)[-1]) == begun[-1]
    assert curve(stayed) == curve(elastic.log(kubectl, "undisturbed", 0))
    assert set(curve(came)) <= set(curve(stayed))


def example(name: str, seconds: float, **env: str) -> dict[str, Any]:
    """The job of an example, with checkpoints in memory, and with steps that take longer by this time."""
    job: dict[str, Any] = yaml.safe_load((ROOT / f"examples/{name}/pytorchjob.yaml").read_text())
    job["spec"]["agent"] = {**job["spec"].get("agent", {}), **CHECKPOINT}
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    *_, script = container["command"]
    start = f'printf %s "$SLOWLY" >/tmp/slowly.py; exec pytorchjob-agent run -- /tmp/slowly.py {script}'
    container["command"] = ["sh", "-c", start]
    return elastic.with_env(job, {"CHECKPOINT_DIR": FOLDER, "SLOWLY": SLOWLY, "STEP_SECONDS": str(seconds), **env})


def lose_rank_0(kubectl: Kubectl, job: dict[str, Any], number: str, least: int) -> str:
    """Delete the pod of rank 0 once the other has a copy of a file with this number; return its successor's log."""
    name = job["metadata"]["name"]
    elastic.submit(kubectl, elastic.with_env(job, {"NUMBER": number, "WAITS_AT": str(least + 1)}))
    until(lambda: held(kubectl, f"{name}-worker-1", 0, number) >= least, 300, lambda: f"\n{kubectl.story(name)}")
    faults.force_delete_pod(kubectl, f"{name}-worker-0")
    finish(kubectl, name)
    return elastic.log(kubectl, name, 0)


def undisturbed(kubectl: Kubectl, job: dict[str, Any]) -> str:
    """The log of rank 0 of the same job, left alone."""
    job["metadata"]["name"] = "undisturbed"
    elastic.submit(kubectl, elastic.with_env(job, {"WAITS_AT": "0"}))
    finish(kubectl, "undisturbed")
    return elastic.log(kubectl, "undisturbed", 0)


@pytest.mark.long
def test_hugging_faces_trainer_loses_rank_0_and_learns_the_same(kubectl: Kubectl, tmp_path: Path) -> None:
    with pages.with_libraries(kubectl, "hugging-face", tmp_path):
        job = example("hugging-face", 0.15, STEPS="200")
        after = lose_rank_0(kubectl, job, r"checkpoint-(\d+)", 60)
        before = undisturbed(kubectl, job)
    assert re.search(r"resumes from /checkpoints/checkpoint-\d+", after), after[-2000:]
    losses = _HF_LOSS.findall(after)
    assert len(losses) >= 3
    assert _HF_LOSS.findall(before)[-len(losses) :] == losses


@pytest.mark.long
def test_lightning_loses_rank_0_and_learns_the_same(kubectl: Kubectl, tmp_path: Path) -> None:
    with pages.with_libraries(kubectl, "lightning", tmp_path):
        job = example("lightning", 0.05, EPOCHS="16")
        after = lose_rank_0(kubectl, job, r"epoch=(\d+)", 4)
        before = undisturbed(kubectl, job)
    assert "Restored all states from the checkpoint at /checkpoints/" in after, after[-2000:]
    accuracies = [re.findall(r"accuracy=[\d.]+", text)[-1] for text in (before, after)]
    assert accuracies[0] == accuracies[1]
