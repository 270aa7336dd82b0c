"""Killed processes that the kernel does not end, since a device does not answer. One that is spared stands for them."""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.rounds.values import Policy

from .conftest import Job

pytestmark = [pytest.mark.torch]
AGENT = """
import runpy, sys
from pathlib import Path
from pytorchjob_agent.rendezvous import loop
from pytorchjob_agent.system import processes
loop._UNKILLED_SECONDS = float(sys.argv.pop(1))
kill = processes._kill
processes._kill = lambda pid: None if b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes() else kill(pid)
runpy.run_module("pytorchjob_agent", run_name="__main__")
"""
SCRIPT = """
import os, subprocess, sys, time
from pathlib import Path
first = Path(os.environ["FOLDER"], "first")
if first.exists():
    alive = Path("/proc", first.read_text(), "cmdline").exists()
    print("trains again", "beside" if alive else "alone", flush=True)
    sys.exit()
first.write_text(str(subprocess.Popen(["sleep", "600"], start_new_session=True).pid))
print("left", first.read_text(), flush=True)
sys.exit(5)
"""


@pytest.fixture
def one(job: Job, tmp_path: Path) -> Job:
    """A job of one pod, whose first worker fails and leaves a process."""
    job.policy = Policy(1, 1)
    job.env.update(FOLDER=str(tmp_path), PET_NNODES="1")
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "train.py").write_text(SCRIPT)
    return job


def command(folder: Path, seconds: float) -> tuple[str, ...]:
    return (sys.executable, str(folder / "agent.py"), str(seconds), "run", "--", str(folder / "train.py"))


def test_the_next_workers_wait_for_the_end_of_the_last_ones(one: Job, tmp_path: Path) -> None:
    pod = one.start(0, command=command(tmp_path, 200))
    pod.says("killed processes have not ended")
    assert "trains again" not in pod.text()
    os.kill(int((tmp_path / "first").read_text()), signal.SIGKILL)
    pod.says("trains again")
    assert pod.process.wait(60) == 0


def test_a_pod_whose_last_workers_never_end_leaves_its_node(one: Job, tmp_path: Path) -> None:
    pod = one.start(0, command=command(tmp_path, 1))
    try:
        assert pod.process.wait(60) == ExitCode.PREFLIGHT
        said = json.loads(pod.words.read_text())
        assert said["reason"] == "DeviceFailed"
        assert "not ended within 1 s" in said["message"]
    finally:
        with suppress(ProcessLookupError):
            os.kill(int((tmp_path / "first").read_text()), signal.SIGKILL)


def test_what_a_failed_worker_has_started_ends_before_the_next_workers_start(one: Job, tmp_path: Path) -> None:
    pod = one.start(0, command=(sys.executable, "-m", "pytorchjob_agent", "run", "--", str(tmp_path / "train.py")))
    pod.says("trains again")
    assert "trains again alone" in pod.text()
