"""Scripts that handle SIGTERM themselves and save together: all workers get to the end of it, whoever has to go."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.rounds.values import Policy
from tests.local.conftest import start
from tests.local.jobs import Run, role
from tests.local.jobs import job as local_job
from tests.waiting import until

from .conftest import Job

__all__ = ["start"]

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
SCRIPT = Path(__file__).with_name("saving_at_the_end.py")
AGENT = (sys.executable, "-m", "pytorchjob_agent", "run", "--", str(SCRIPT))
TIMES = [1, pytest.param(10, marks=pytest.mark.long)]


@pytest.fixture(params=[pytest.param("step", marks=pytest.mark.long), "handler"])
def how(request: pytest.FixtureRequest) -> str:
    """Where the script saves."""
    return str(request.param)


def cleared(folder: Path) -> Path:
    for path in [*folder.glob("ready-*"), *folder.glob("ended-*"), *folder.glob("saved")]:
        path.unlink()
    return folder


def ready(folder: Path) -> None:
    until(lambda: len([*folder.glob("ready-*")]) == 2)


def saved(folder: Path) -> bool:
    return (folder / "saved").exists() and len([*folder.glob("ended-*")]) == 2


@pytest.mark.parametrize(
    ("code", "end"),
    [
        pytest.param("import nothing_of_this_name", ExitCode.WORKER_FAILED, id="a module that is missing"),
        pytest.param("def f(:", ExitCode.WORKER_FAILED, id="no Python", marks=pytest.mark.long),
        pytest.param(
            "import argparse; argparse.ArgumentParser().parse_args(['--lrr'])",
            2,
            id="a wrong argument",
            marks=pytest.mark.long,
        ),
        pytest.param(None, 2, id="no such script"),
    ],
)
@pytest.mark.parametrize("mode", ["cold", pytest.param("warm", marks=pytest.mark.long)])
def test_what_every_start_repeats_ends_the_job_at_once(
    job: Job, tmp_path: Path, code: str | None, end: int, mode: str
) -> None:
    script = tmp_path / "script.py"
    if code is not None:
        script.write_text(code)
    for index in range(2):
        job.start(index, command=(*AGENT[:-1], str(script)), PYTORCHJOB_START_MODE=mode)
    assert job.end() == [end] * 2
    assert job.report().restarts == 0


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("mode", ["cold", pytest.param("warm", marks=pytest.mark.long)])
def test_all_pods_of_a_job_are_deleted(job: Job, tmp_path: Path, how: str, mode: str, times: int) -> None:
    for turn in range(times):
        folder = cleared(tmp_path)
        env = {"ENDS": str(folder), "HOW": how, "PYTORCHJOB_START_MODE": mode}
        pods = [job.start(index, f"u{turn}", AGENT, **env) for index in range(2)]
        ready(folder)
        for pod in pods:
            pod.process.send_signal(signal.SIGTERM)
        assert job.end() == [ExitCode.DRAINED] * 2
        assert saved(folder), [pod.output.read_text() for pod in pods]


@pytest.mark.parametrize("times", TIMES)
def test_one_pod_of_an_elastic_job_goes(job: Job, tmp_path: Path, how: str, times: int) -> None:
    job.policy = Policy(1, 2)
    for turn in range(times):
        job.begin_anew()
        folder = cleared(tmp_path)
        zero, one = (job.start(index, f"u{turn}", AGENT, ENDS=str(folder), HOW=how) for index in range(2))
        ready(folder)
        one.process.send_signal(signal.SIGTERM)
        job.expect(0)
        assert one.process.wait(60) == ExitCode.DRAINED
        assert zero.process.wait(60) == 0
        assert saved(folder), zero.output.read_text()
        zero.says("works after a save")
        assert job.report().restarts == 0


@pytest.mark.parametrize("times", TIMES)
def test_ctrl_c_ends_a_local_run(start: Callable[..., Run], tmp_path: Path, how: str, times: int) -> None:
    for _ in range(times):
        folder = cleared(tmp_path)
        run = start(local_job(Worker=member(folder, how)), "--grace", "15")
        ready(folder)
        run.signal(signal.SIGINT)
        assert run.wait() == 130
        assert saved(folder), run.out + run.err


@pytest.mark.long  # the deadline counts from the start, and a busy machine needs longer to import torch
@pytest.mark.parametrize("times", TIMES)
def test_the_deadline_ends_a_local_run(start: Callable[..., Run], tmp_path: Path, times: int) -> None:
    for _ in range(times):
        folder = cleared(tmp_path)
        limited = local_job(Worker=member(folder, "handler"), run_policy={"activeDeadlineSeconds": 20})
        run = start(limited, "--grace", "15")
        assert run.wait() == 1
        assert saved(folder), run.out + run.err


@pytest.mark.parametrize("times", TIMES)
def test_a_local_run_is_scaled_down(start: Callable[..., Run], tmp_path: Path, how: str, times: int) -> None:
    for turn in range(times):
        folder, path = cleared(tmp_path), tmp_path / f"scaled-{turn}.yaml"
        spec = local_job(Worker=member(folder, how), elastic={"minReplicas": 1, "maxReplicas": 2})
        path.write_text(yaml.safe_dump(spec))
        run = start(path, "--grace", "15")
        ready(folder)
        spec["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 1
        path.write_text(yaml.safe_dump(spec))
        run.signal(signal.SIGHUP)
        assert run.wait() == 0
        assert saved(folder), run.out + run.err


def member(folder: Path, how: str) -> dict[str, Any]:
    given = {"ENDS": str(folder), "HOW": how, "GLOO_SOCKET_IFNAME": "lo", "PYTORCHJOB_PREFLIGHT": "off"}
    listed = [{"name": name, "value": value} for name, value in {**given, "PATH": os.environ["PATH"]}.items()]
    return role([*AGENT], 2, "OnFailure", env=listed)
