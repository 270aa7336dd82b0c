"""Progress of scripts that know nothing of the agent, from the worker to the status of a local run."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent.command.install import install
from tests.local.jobs import Run, job, role

Start = Callable[..., Run]

POSTS = """
import json, os, time, urllib.request
rank = int(os.environ["RANK"])
url, token = os.environ["KUBEFLOW_TRAINER_SERVER_URL"], open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read()
def post(**status):
    body = json.dumps({"trainerStatus": status}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data=body, headers=headers), timeout=5) as answer:
        assert answer.status == 200
if rank == 0:
    steps = [{"name": "current_step", "value": "5"}, {"name": "total_steps", "value": "10"}]
    post(progressPercentage=50, metrics=steps)
    post(progressPercentage=100, estimatedRemainingSeconds=0, metrics=[{"name": "loss", "value": "0.25"}])
"""
PRINTS = """
import os, sys
rank = int(os.environ["RANK"])
for step in range(1, 11 - rank):
    sys.stderr.write(f"\\rSteps: {10 * step:3d}%|##    | {step}/10 [00:01<00:09,  1.00it/s, loss={1 / step:.3f}]")
sys.stderr.write("\\n")
sys.stderr.write("Evaluating steps:  10%|##    | 1/10 [00:01<00:09,  1.00it/s, loss=9.0]\\n")
"""
SILENT = """
import os
assert "KUBEFLOW_TRAINER_SERVER_URL" not in os.environ
print("step 5/10 loss 0.5")
"""
COMMAND = ["pytorchjob-agent", "run", "--", "--nproc-per-node", "1", "train.py"]


def progress(run: Run) -> dict[str, Any] | None:
    assert run.wait() == 0, run.out + run.err
    found: dict[str, Any] | None = json.loads(run.out)["status"].get("progress")
    return found


def columns(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.out)["status"]["columns"]
    return found


@pytest.mark.torch
def test_what_a_library_posts_is_in_the_status(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(POSTS)
    run = start(job(Master=role(COMMAND), Worker=role(COMMAND)), "-o", "json")
    found = progress(run)
    assert found is not None
    shown = {name: found.get(name) for name in ("step", "total", "percent", "metrics")}
    assert shown == {"step": 5, "total": 10, "percent": 100, "metrics": {"loss": 0.25}}
    assert (columns(run)["progress"], columns(run)["loss"]) == ("100%", "0.25")


@pytest.mark.torch
def test_a_bar_is_in_the_status(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PRINTS)
    found = progress(start(job(Master=role(COMMAND), Worker=role(COMMAND)), "-o", "json"))
    assert found is not None
    shown = {name: found.get(name) for name in ("step", "total", "percent", "metrics")}
    assert shown == {"step": 10, "total": 10, "percent": 100, "metrics": {"loss": 0.1}}


@pytest.mark.torch
def test_a_job_that_forbids_it_has_no_progress(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SILENT)
    spec = job(Master=role(COMMAND))
    spec["spec"]["agent"] = {"observeProgress": False}
    assert progress(start(spec, "-o", "json")) is None


TRAINER = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
rows = [{"input_ids": torch.randint(0, 64, (8,)), "labels": torch.randint(0, 64, (8,))} for _ in range(64)]
arguments = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=4, logging_steps=2, use_cpu=True,
                              save_strategy="no", eval_strategy="epoch", report_to="none")
Trainer(LlamaForCausalLM(config), arguments, train_dataset=rows, eval_dataset=rows[:8]).train()
"""
LIGHTNING = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset
IMPORTS

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        loss = self.layer(batch[0]).square().mean()
        self.log("train_loss", loss)
        return loss
    def validation_step(self, batch, index):
        self.log("val_loss", self.layer(batch[0]).square().mean(), sync_dist=True)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

data = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4)
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", num_nodes=2, devices=1, logger=False, log_every_n_steps=2,
                            enable_checkpointing=False, callbacks=CALLBACKS)
trainer.fit(Model(), data, data)
"""


def installed(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(name) is None, reason=f"{name} is not installed: run `make libraries`"
    )


@pytest.mark.torch
@pytest.mark.long
@installed("transformers")
@installed("accelerate")
def test_hugging_faces_trainer_needs_no_changed_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    run = start(job(Master=role(COMMAND), Worker=role(COMMAND)), "-o", "json")
    found = progress(run)
    assert found is not None
    assert (found["percent"], found["total"]) == (100, 16)
    assert found["metrics"].keys() >= {"loss", "train_loss", "eval_loss", "learning_rate"}
    assert columns(run)["progress"] == "100%"


@pytest.mark.torch
@pytest.mark.long
@installed("lightning")
def test_lightning_needs_no_changed_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LIGHTNING.replace("IMPORTS", "").replace("CALLBACKS", "[]"))
    install(tmp_path / "agent")  # as pip does, or the operator with `inject: true`
    own = role(COMMAND, env=[{"name": "PYTHONPATH", "value": str(tmp_path / "agent")}])
    run = start(job(Master=own, Worker=own), "-o", "json")
    found = progress(run)
    assert found is not None
    assert (found["step"], found["total"], found["percent"]) == (16, 16, 100)
    assert found["metrics"].keys() == {"train_loss", "val_loss"}
    assert columns(run)["progress"] == "100%"


@pytest.mark.torch
@pytest.mark.long
@installed("lightning")
def test_lightnings_callback_reports_steps(start: Start, tmp_path: Path) -> None:
    imports = "from pytorchjob_agent import LightningProgress"
    script = LIGHTNING.replace("IMPORTS", imports).replace("CALLBACKS", "[LightningProgress()]")
    (tmp_path / "train.py").write_text(script)
    found = progress(start(job(Master=role(COMMAND), Worker=role(COMMAND)), "-o", "json"))
    assert found is not None
    assert (found["step"], found["total"], found["percent"]) == (16, 16, 100)
    assert found["metrics"].keys() == {"train_loss", "val_loss"}
