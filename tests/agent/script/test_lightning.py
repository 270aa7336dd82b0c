"""The callbacks for Lightning, with a package that has its names and nothing else."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytorchjob_agent.observers.status_server import StatusServer
from pytorchjob_agent.script.agent_side import ProgressFiles, WorkerProgress
from pytorchjob_agent.script.observation import Observation
from pytorchjob_agent.script.status_request import SERVER_URL, TOKEN_FILE

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys
{imports}
from pytorchjob_agent import LightningProgress
assert {base} in [base.__module__ for base in LightningProgress.__mro__], LightningProgress.__mro__

class Trainer:
    global_step, log_every_n_steps, sanity_checking = 0, 2, True
    estimated_stepping_batches = {total}
    callback_metrics = {{"val": 1.0}}

trainer, callback = Trainer(), LightningProgress()
callback.on_validation_batch_end(trainer, None, None, None, 0)
callback.on_validation_end(trainer, None)
trainer.sanity_checking = False
callback.on_train_start(trainer, None)
for step in range(1, {steps} + 1):
    trainer.global_step = step
    trainer.callback_metrics = {{"val": 1.0, "step": 5, "x" * 70: 6, "train_loss": step / 10}}
    callback.on_train_batch_end(trainer, None, None, None, step)
"""


SHOWN = """
import os
{imports}
import lightning.pytorch
from pytorchjob_agent.script.lightning import callbacks

class Trainer:
    global_step, is_global_zero, estimated_stepping_batches, callback_metrics = 0, {first}, {total}, {{}}

trainer = Trainer()
for callback in callbacks():
    callback.on_train_start(trainer, None)
    for step in range(1, {steps} + 1):
        trainer.global_step = step
        callback.on_train_batch_end(trainer, None, None, None, step)
    trainer.callback_metrics = {{"train_loss": 0.25, "bad": float("nan")}}
    callback.on_train_end(trainer, None)
"""


def package(directory: Path, name: str) -> None:
    """A package with a class of callbacks."""
    folder = directory.joinpath(*name.split("."))
    folder.mkdir(parents=True)
    for each in (directory / name.partition(".")[0], folder):
        (each / "__init__.py").touch()
    (folder / "callbacks.py").write_text("class Callback:\n    pass\n")


def show(directory: Path, env: dict[str, str] | None = None, **parts: object) -> tuple[list[Observation], str]:
    """What the agent's server gets from a script with the callbacks that Lightning finds."""
    found: list[Observation] = []
    server = StatusServer(directory, lambda _, new: found.append(new))
    path = os.pathsep.join([str(ROOT / "operator"), str(directory)])
    given = server.env(0, {}) if env is None else env
    values = {"imports": "", "first": True, "total": 10, "steps": 5, **parts}
    done = subprocess.run(
        [sys.executable, "-c", SHOWN.format(**values)],
        env={**os.environ, "PYTHONPATH": path, **given},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    server.close()
    return found, done.stderr


def run(directory: Path, **parts: object) -> tuple[WorkerProgress, str]:
    files = ProgressFiles(directory / "files", 1)
    values = {"imports": "", "base": "'lightning.pytorch.callbacks'", "total": 10, "steps": 0, **parts}
    path = os.pathsep.join([str(ROOT / "operator"), str(directory)])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(**values)],
        env={**os.environ, "PYTHONPATH": path, **files.env(0)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (found,) = files.read()
    files.close()
    return found, done.stderr


@pytest.fixture
def both(tmp_path: Path) -> Path:
    package(tmp_path, "lightning.pytorch")
    package(tmp_path, "pytorch_lightning")
    return tmp_path


def test_steps_and_the_metrics_of_the_last_log_are_reported(both: Path) -> None:
    found, error = run(both, steps=5)
    assert (found.step, found.total, dict(found.metrics)) == (5, 10, {"train_loss": 0.4, "val": 1.0}), error


def test_a_training_without_an_end_has_no_total(both: Path) -> None:
    found, error = run(both, total="float('inf')", steps=1)
    assert (found.step, found.total) == (1, None), error


def test_the_check_before_the_first_step_reports_nothing(both: Path) -> None:
    found, error = run(both)
    assert (found.step, found.first_step) == (0, 0), error
    assert error == ""


def test_the_package_that_the_script_uses_is_the_base(both: Path) -> None:
    _, error = run(both, imports="import pytorch_lightning", base="'pytorch_lightning.callbacks'")
    assert error == ""


@pytest.mark.skipif(importlib.util.find_spec("lightning") is not None, reason="Lightning is installed")
def test_without_lightning_the_import_says_what_to_install(tmp_path: Path) -> None:
    _, error = run(tmp_path)
    assert "ImportError: LightningProgress needs the package lightning or pytorch_lightning: install it" in error


def test_a_script_that_names_no_callback_is_shown_from_its_beginning_to_its_end(both: Path) -> None:
    found, error = show(both)
    assert (found[0], found[-1]) == (Observation(0, 10, 0), Observation(5, 10, 50, metrics={"train_loss": 0.25})), error
    assert error == ""


def test_a_training_without_an_end_shows_steps_only(both: Path) -> None:
    found, error = show(both, total="float('inf')")
    assert found[-1] == Observation(5, metrics={"train_loss": 0.25}), error


@pytest.mark.parametrize(
    ("env", "parts"),
    [
        pytest.param(None, {"first": False}, id="a rank that is not the first"),
        pytest.param(None, {"total": "None"}, id="a trainer that cannot tell its steps"),
        pytest.param(None, {"imports": "os.environ['KUBEFLOW_TRAINER_SERVER_TOKEN'] = '/none'"}, id="no token"),
        pytest.param(
            {SERVER_URL: "http://127.0.0.1:9/ranks/0/status", TOKEN_FILE: "/dev/null"}, {}, id="a server gone"
        ),
        pytest.param({SERVER_URL: "https://trainer/ranks/0/status", TOKEN_FILE: "/dev/null"}, {}, id="another server"),
        pytest.param({SERVER_URL: ""}, {}, id="no agent"),
    ],
)
def test_what_cannot_be_shown_does_not_disturb(
    both: Path, env: dict[str, str] | None, parts: dict[str, object]
) -> None:
    assert show(both, env, **parts) == ([], "")


def test_only_a_worker_of_an_agent_gets_a_callback(both: Path) -> None:
    counts = "import atexit; atexit.register(lambda: print(len(callbacks()), file=__import__('sys').stderr))"
    assert show(both, imports=counts)[1] == "1\n"
    assert (
        show(both, {SERVER_URL: "https://trainer/ranks/0/status", TOKEN_FILE: "/dev/null"}, imports=counts)[1] == "0\n"
    )
