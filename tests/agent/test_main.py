"""The command: its help and its errors need no torch."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from pytorchjob_agent.__main__ import main
from pytorchjob_agent.contract.environment import TERMINATION_LOG
from pytorchjob_agent.contract.termination import TerminationMessage

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        pytest.param(["--help"], 0, "PYTORCHJOB_TERMINATION_LOG", id="help names the variables"),
        pytest.param(["run", "--help"], 0, "TORCHRUN-ARGUMENTS", id="help of run"),
        pytest.param(["--version"], 0, ".", id="version"),
        pytest.param([], 2, "expected: pytorchjob-agent run", id="nothing at all"),
        pytest.param(["start"], 2, "unrecognized arguments: start", id="another word"),
        pytest.param(["run", "--"], 2, "nothing to run", id="run without a script"),
    ],
)
def test_the_command_line(argv: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(argv)
    out, err = capsys.readouterr()
    assert exit_info.value.code == code
    assert words in out + err


@pytest.mark.parametrize("argv", [["start"], ["run", "--"]], ids=["another word", "no script"])
def test_a_wrong_command_line_is_in_the_pods_status_too(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv(TERMINATION_LOG, str(log))
    with pytest.raises(SystemExit):
        main(argv)
    message = TerminationMessage.from_json(log.read_text())
    assert (message.reason, message.exit_code) == ("BadUsage", 2)


def bare(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the agent by an interpreter that sees the standard library alone."""
    command = [sys.executable, "-S", "-P", "-m", "pytorchjob_agent", *words]
    everything = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "operator")} | env
    return subprocess.run(command, env=everything, capture_output=True, text=True, timeout=60)


def test_the_interpreter_of_these_tests_is_bare() -> None:
    done = subprocess.run([sys.executable, "-S", "-c", "import kopf"], capture_output=True, text=True, timeout=60)
    assert "ModuleNotFoundError" in done.stderr, sysconfig.get_paths()


def test_help_needs_the_standard_library_alone() -> None:
    assert "TORCHRUN-ARGUMENTS" in bare("--help").stdout


def test_an_image_without_torch_is_told_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = bare("run", "train.py", PYTORCHJOB_TERMINATION_LOG=str(log))
    assert done.returncode == 78
    assert "torch cannot be imported in this image" in done.stderr
    assert '"reason":"TorchMissing"' in log.read_text()


def test_a_broken_variable_is_told() -> None:
    done = bare("run", "train.py", PET_NNODES="many")
    assert done.returncode == 78
    assert "PET_NNODES: 'many'" in done.stderr


def test_a_broken_grace_is_told() -> None:
    assert "PYTORCHJOB_GRACE_SECONDS: 'long'" in bare("run", "train.py", PYTORCHJOB_GRACE_SECONDS="long").stderr
