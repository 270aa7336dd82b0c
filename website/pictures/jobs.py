"""The jobs of the pictures: examples with other values, and a job that fails. Pure, but for reading the examples."""

from pathlib import Path
from typing import Any

import yaml

from pytorchjob_operator import names
from website.pictures.scenes import BLOCKED, FAILING, HANGING, TRAINING

Object = dict[str, Any]

FAILING_SCRIPT = """\
import os
import time

from pytorchjob_agent import progress


def step(number):
    if number == 5 and os.environ["RANK"] == "1":
        raise ValueError("the loss is nan")
    time.sleep(0.2)
    progress(number, 100)


for number in range(1, 101):
    step(number)
"""
"""train.py of the job that fails."""


def hanging(root: Path) -> Object:
    """The elastic example with three workers, for a worker that is stopped while it trains."""
    job = _example(root, HANGING)
    _worker(job)["replicas"] = 3
    _container(job)["env"] += _variables(STEPS=200, STEP_SECONDS=0.5)
    return job


def blocked(root: Path) -> Object:
    """The digits example with workers that need GPUs."""
    job = _example(root, BLOCKED)
    _container(job)["resources"]["limits"] = {"nvidia.com/gpu": 8}
    return job


def training(root: Path) -> Object:
    """The FSDP2 example with more steps, without checkpoints and the volume for them."""
    job = _example(root, TRAINING)
    del _worker(job)["template"]["spec"]["volumes"], _container(job)["volumeMounts"]
    _container(job)["env"] = _variables(OMP_NUM_THREADS=1, STEPS=200, STEP_SECONDS=0.3)
    return job


def failing() -> Object:
    """A job of two workers, one of which fails at the same step after each restart."""
    container = {"name": names.CONTAINER, "image": "tiny:1", "command": ["pytorchjob-agent", "run", "--", "train.py"]}
    worker = {"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": FAILING},
        "spec": {
            "nprocPerNode": "1",
            "runPolicy": {"backoffLimit": 2},
            "pytorchReplicaSpecs": {"Worker": worker},
        },
    }


def _example(root: Path, name: str) -> Object:
    return dict(yaml.safe_load((root / "examples" / name / "pytorchjob.yaml").read_text()))


def _worker(job: Object) -> Object:
    worker: Object = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    return worker


def _container(job: Object) -> Object:
    container: Object = _worker(job)["template"]["spec"]["containers"][0]
    return container


def _variables(**values: float) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]
