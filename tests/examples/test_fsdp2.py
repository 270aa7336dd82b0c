"""The example of FSDP2: its checkpoints are loaded by other numbers of processes, and each step has the same loss."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.examples.test_examples import AGENT, outputs
from tests.examples.test_examples import start as start_python
from tests.local.jobs import Run, write

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]


def losses(text: str) -> list[tuple[int, float]]:
    """The steps and losses in the order in which rank 0 printed them."""
    return [(int(step), float(loss)) for step, loss in re.findall(r"step=(\d+) members=\d+ loss=(\S+)", text)]


def train(processes: int, folder: Path, steps: int) -> str:
    env = {"CHECKPOINT_DIR": str(folder), "STEPS": str(steps), "STEP_SECONDS": "0"}
    return outputs(start_python(*AGENT, f"--nproc-per-node={processes}", "examples/fsdp2/train.py", **env))[0]


def test_three_processes_go_on_from_the_checkpoint_of_two_with_the_same_losses(tmp_path: Path) -> None:
    two = train(2, tmp_path, steps=8)
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-5"]
    three = train(3, tmp_path, steps=10)
    assert "rank=2 world_size=3 from_step=5" in three
    before, after = dict(losses(two)), dict(losses(three))
    assert (sorted(before), sorted(after)) == ([*range(1, 9)], [*range(6, 11)])
    assert [after[step] for step in (6, 7, 8)] == pytest.approx([before[step] for step in (6, 7, 8)], rel=1e-3)
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-10"]


@pytest.mark.long
def test_a_killed_worker_and_a_third_worker_change_no_loss(
    start: Callable[..., Run], example: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    job = example("fsdp2", CHECKPOINT_DIR=str(folder), STEPS="60", STEP_SECONDS="0.3")
    path = write(tmp_path / "fsdp2.yaml", job)
    run = start(path)
    run.until("step=7 members=2")
    os.kill(run.pids()[-1], signal.SIGKILL)
    run.until("world_size=2 from_step=5", times=2)
    run.until("step=9 members=2")
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 3
    write(path, job)
    run.signal(signal.SIGHUP)
    assert run.wait() == 0, run.out + run.err
    rounds = re.findall(r"rank=0 world_size=(\d) from_step=(\d+)", run.out)
    assert [world for world, _ in rounds] == ["2", "2", "3"]
    assert 5 <= int(rounds[1][1]) < int(rounds[2][1]), "on from the last checkpoint, then from that of a request"
    alone, together = dict(losses(train(1, tmp_path / "alone", steps=60))), losses(run.out)
    assert {step for step, _ in together} == {*range(1, 61)}
    assert [loss for _, loss in together] == pytest.approx([alone[step] for step, _ in together], rel=1e-2)
    assert alone[60] < alone[1] / 10
