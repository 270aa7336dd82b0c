"""The command `doctor`, with and without torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytorchjob_agent.preflight import doctor
from pytorchjob_agent.preflight.facts import ContainerLimits, Facts, Torch
from pytorchjob_agent.preflight.policy import CheckLevel, PreflightFinding, run_checks

ROOT = Path(__file__).parents[3]
NO_TORCH = Facts(machine=ContainerLimits(shm=1), torch=Torch(problem="gone"), python="3.11.7", clock="noon")
FINDINGS = (
    PreflightFinding("torch", CheckLevel.OK, "torch 2.15.0"),
    PreflightFinding("shm", CheckLevel.WARN, "64 MiB in /dev/shm", "mount more"),
    PreflightFinding("gpus", CheckLevel.FAIL, "0 GPUs", "ask for some"),
)


def run(*words: str, flags: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, *flags, "-P", "-m", "pytorchjob_agent", "doctor", *words]
    everything = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "operator")} | env
    return subprocess.run(command, env=everything, capture_output=True, text=True, timeout=100)


def test_the_table_has_each_remedy_below_its_problem() -> None:
    assert doctor.table(FINDINGS).splitlines() == [
        "ok    torch  torch 2.15.0",
        "WARN  shm    64 MiB in /dev/shm",
        "             -> mount more",
        "FAIL  gpus   0 GPUs",
        "             -> ask for some",
        "",
        "1 failed, 1 warning, 1 ok",
    ]


def test_the_report_is_one_versioned_object() -> None:
    data = json.loads(doctor.as_json(NO_TORCH, run_checks(NO_TORCH)))
    assert (data["version"], data["clock"]) == (1, "noon")
    assert data["versions"] == {"python": "3.11.7", "torch": None, "cuda": None, "nccl": None}
    assert data["findings"][1]["found"] == "torch cannot be imported: gone"
    assert {tuple(finding) for finding in data["findings"]} == {("check", "level", "found", "remedy")}


def test_an_image_without_torch() -> None:
    done = run(flags=("-S",))
    assert done.returncode == 200
    assert "FAIL  torch" in done.stdout
    assert "-> install torch 2.4 or newer" in done.stdout


def test_a_variable_of_the_operator_that_is_broken() -> None:
    done = run("--json", flags=("-S",), PET_NNODES="many", PYTORCHJOB_PREFLIGHT_TORCH="warn")
    first, second, *_ = json.loads(done.stdout)["findings"]
    assert (done.returncode, first["level"], second["level"]) == (200, "fail", "warn")
    assert "PET_NNODES: 'many'" in first["found"]


@pytest.mark.parametrize(
    ("env", "found"),
    [
        pytest.param({"PYTORCHJOB_COORDINATOR": "nowhere"}, "PYTORCHJOB_COORDINATOR: 'nowhere'", id="no port"),
        pytest.param({"PYTORCHJOB_COORDINATOR": "a:1"}, "PYTORCHJOB_JOB, PYTORCHJOB_POD", id="a part of them"),
    ],
)
def test_a_coordinator_with_which_run_would_not_start(env: dict[str, str], found: str) -> None:
    done = run("--json", flags=("-S",), PYTORCHJOB_TOKEN_FILE="/token", **env)
    first, *_ = json.loads(done.stdout)["findings"]
    assert (first["check"], first["level"]) == ("contract", "fail")
    assert found in first["found"]


def test_a_process_below_the_agent_has_no_credential_and_lacks_nothing() -> None:
    done = run("--json", flags=("-S",), PYTORCHJOB_COORDINATOR="a:1")
    assert json.loads(done.stdout)["findings"][0]["level"] == "ok"


def test_a_check_that_is_unknown_is_told() -> None:
    assert "PYTORCHJOB_PREFLIGHT_SMH is not a check" in run(flags=("-S",), PYTORCHJOB_PREFLIGHT_SMH="off").stdout


def test_warnings_alone_are_no_failure() -> None:
    done = run(flags=("-S",), PYTORCHJOB_PREFLIGHT="warn", PET_NNODES="2")
    assert done.returncode == 0
    assert "there is no rendezvous endpoint" in done.stdout


def test_an_argument_that_is_unknown() -> None:
    assert run("--fix", flags=("-S",)).returncode == 2


@pytest.mark.torch
def test_a_machine_with_torch_is_reported() -> None:
    torch = pytest.importorskip("torch")
    done = run("--json", "--nproc-per-node=2")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["versions"]["torch"] == torch.__version__
