"""The example of autoscaling: the autoscaler that the operator would create, and what one does to the training."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.local.jobs import Run, write
from tests.people.calling import call


def test_the_plan_has_an_autoscaler_with_the_jobs_bounds_and_metric(example: Callable[..., dict[str, Any]]) -> None:
    job = example("autoscaling")
    planned = call(None, "plan", "-", stdin=yaml.safe_dump(job)).stdout
    (scaler,) = [each for each in yaml.safe_load_all(planned) if each["kind"] == "HorizontalPodAutoscaler"]
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 4)
    assert scaler["spec"]["metrics"] == job["spec"]["elasticPolicy"]["metrics"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == "autoscaling"


@pytest.mark.torch
@pytest.mark.long
def test_training_goes_on_while_the_number_of_workers_follows_the_file(
    start: Callable[..., Run], example: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    job = example("autoscaling", CHECKPOINT_DIR=str(tmp_path / "checkpoints"), STEPS="150", STEP_SECONDS="0.1")
    path = write(tmp_path / "job.yaml", job)
    run = start(path)
    for now, then in ((2, 3), (3, 2)):
        run.until(f"members={now} ")
        job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = then
        write(path, job)
        run.signal(signal.SIGHUP)
        run.until(f"rank=0 world_size={then} from_step=", times=1 if then == 3 else 2)
    assert run.wait() == 0, run.out + run.err
    assert [int(step) for step in re.findall(r"step=(\d+) members=", run.out)] == [*range(1, 151)], "each step once"
