"""Ranks on one GPU that are killed, fail or hang: the job goes on, names the cause, and the time until then is kept."""

import os
import re
import signal
import sys
import time
from typing import Any

import pytest

from pytorchjob_agent.contract.environment import SURVIVE
from pytorchjob_agent.contract.reasons import ShrinkState
from pytorchjob_agent.workers.ready import PAUSE_SECONDS
from pytorchjob_agent.workers.startup.pytorchjob_backends import BACKENDS
from pytorchjob_operator.rounds.values import Policy
from tests.agent.rendezvous.conftest import Job
from tests.gpu.conftest import GPU, NEEDS_GPU, TRAIN, Record
from tests.waiting import until

COMMAND = (sys.executable, "-m", "pytorchjob_agent", "run", "--", str(TRAIN))
KILLS = 10 if GPU else 2


def start(job: Job, pods: int, policy: Policy | None = None, **env: str) -> None:
    """Start so many pods."""
    job.policy = policy or Policy(pods, pods)
    job.expect(*range(pods))
    for index in range(pods):
        job.start(index, command=COMMAND, **env)


@NEEDS_GPU
def test_the_others_go_on_without_a_killed_rank(job: Job, backend: str, record: Record) -> None:
    policy = Policy(1, 3, survive=True, rejoin_within=600.0)
    start(job, 3, policy, STEPS="100000", **{SURVIVE: "auto", BACKENDS: "nccl"})
    first_step(job, 0)
    assert until(lambda: job.report().survive is ShrinkState.READY, 100)
    at = time.time()  # noqa: TID251
    os.kill(worker(job, 2), signal.SIGKILL)
    assert until(lambda: len(job.report().without) == 1)
    texts = [job.pods[index].output.read_text for index in (0, 1)]
    assert until(lambda: all("goes on after" in text() for text in texts))
    pauses = [int(found) for text in texts for found in re.findall(r"goes on after (\d+) ms", text())]
    record("went on", backend=backend, milliseconds=pauses, seconds=time.time() - at)  # noqa: TID251
    counted = [len(text().splitlines()) for text in texts]
    assert until(lambda: all(len(text().splitlines()) > had + 20 for text, had in zip(texts, counted, strict=True)))
    assert all("restarts 1" not in text() for text in texts)


def first_step(job: Job, restarts: int, seconds: float = 200) -> float:
    """Wait until all ranks have trained a step after so many restarts; the time of the last of these steps."""
    line = re.compile(rf"trains step \d+ restarts {restarts} at ([0-9.]+)")
    pods = job.pods.values()
    found = until(lambda: all(line.search(pod.output.read_text()) for pod in pods), seconds)
    assert found
    return max(float(line.search(pod.output.read_text())[1]) for pod in pods)  # type: ignore[index]


def worker(job: Job, index: int) -> int:
    """The pid of a pod's worker, which may be forked: then it has the environment of another program."""
    return int(re.findall(r"works as (\d+)", job.pods[index].output.read_text())[-1])


def told(job: Job) -> Any:
    """What is said of the last restart."""
    last = job.report().last_restart
    assert last is not None
    return last


@pytest.mark.parametrize("mode", ["cold", "warm", "ready"])
def test_a_killed_rank_is_back(job: Job, backend: str, mode: str, record: Record) -> None:
    job.env["PYTORCHJOB_START_MODE"] = mode
    start(job, 3, STEPS="100000")
    first_step(job, 0)
    for number in range(KILLS if mode != "ready" else KILLS // 3 + 1):
        time.sleep(PAUSE_SECONDS + 10 if GPU and mode == "ready" else 1)
        at = time.time()  # noqa: TID251  the workers print it too
        os.kill(worker(job, number % 3), signal.SIGKILL)
        record("killed", backend=backend, mode=mode, seconds=first_step(job, number + 1) - at)


@NEEDS_GPU
@pytest.mark.parametrize("how", ["assert", "memory"])
def test_a_rank_whose_gpu_call_fails_is_named_and_starts_anew(job: Job, backend: str, how: str) -> None:
    if backend == "gloo":
        pytest.skip("the error is that of a GPU")
    start(job, 2, STEPS="50", FAIL="1:5:1", HOW=how)
    assert job.end() == [0, 0]
    last = told(job)
    assert last.first.rank == 1
    assert last.first.error in ("torch.AcceleratorError", "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError")


@NEEDS_GPU
def test_the_memory_of_killed_ranks_is_free_for_the_next_round(job: Job, backend: str, record: Record) -> None:
    """Three quarters of the GPU: the next round cannot start beside the old one."""
    import torch

    if backend == "gloo":
        pytest.skip("there is no memory to wait for")
    size = torch.cuda.get_device_properties(0).total_memory * 0.75 / 2**30
    start(job, 1, STEPS="100000", HOLD_GB=f"{size:.1f}")
    first_step(job, 0)
    for number in range(3):
        at = time.time()  # noqa: TID251
        os.kill(worker(job, 0), signal.SIGKILL)
        record("memory", gigabytes=size, seconds=first_step(job, number + 1) - at)


def test_a_rank_that_hangs_is_found_without_any_setting(job: Job, backend: str, record: Record) -> None:
    start(job, 3, STEPS="50", FAIL="1:20:1", HOW="sleep", QUIET="1")
    at = first_step(job, 0)
    again = first_step(job, 1, 400)
    assert job.end() == [0, 0, 0]
    last = told(job)
    record("hang", backend=backend, seconds=again - at, said=last.message)
    assert last.first.rank == 1
    assert "misbehave" in last.first.message
