"""The checks inside `run`: one line for a warning, the end for a failure, nothing when all is well."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent.preflight import gate
from pytorchjob_agent.preflight.facts import RunRequest, Torch
from pytorchjob_agent.preflight.policy import CheckLevel, PreflightFinding

OK = PreflightFinding("env", CheckLevel.OK, "fine")
WARNING = PreflightFinding("shm", CheckLevel.WARN, "small", "more")
FAILURES = [
    PreflightFinding("gpus", CheckLevel.FAIL, "few", "ask"),
    PreflightFinding("cpu", CheckLevel.FAIL, "slow", "wait"),
]
WORKER = str(Path(__file__).parents[1] / "worker.py")


def test_nothing_is_said_when_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    gate.act([OK])
    assert capsys.readouterr() == ("", "")


def test_a_warning_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    gate.act([OK, WARNING])
    assert capsys.readouterr().err == "pytorchjob-agent: warning: shm: small. Fix: more\n"


def test_all_failures_are_told_at_once() -> None:
    with pytest.raises(gate.PreflightError, match=r"gpus: few. Fix: ask; cpu: slow. Fix: wait"):
        gate.act([OK, *FAILURES])


def test_nothing_is_read_when_all_is_off() -> None:
    def never() -> Torch:
        raise AssertionError("torch was asked")

    gate.check(RunRequest(), {"PYTORCHJOB_PREFLIGHT": "off"}, never)


def test_too_few_gpus_end_it() -> None:
    with pytest.raises(gate.PreflightError, match=r"CUDA_VISIBLE_DEVICES assigns GPUs, but torch 2.15.0 sees 2 for 4"):
        gate.check(RunRequest("4"), {"CUDA_VISIBLE_DEVICES": "0,1"}, lambda: Torch("2.15.0", kind="cuda", visible=2))


@pytest.mark.torch
def test_a_run_without_the_gpus_that_it_asks_for(agent: Callable[..., Any]) -> None:
    pytest.importorskip("torch")
    one = agent("--nproc-per-node=gpu", WORKER, "reduce", CUDA_VISIBLE_DEVICES="")
    assert one.end() == 200, one.text()
    assert one.message().reason == "PreflightFailed"
    assert "--nproc-per-node is gpu, but torch" in one.message().message


@pytest.mark.torch
def test_a_run_that_is_warned_goes_on(agent: Callable[..., Any]) -> None:
    pytest.importorskip("torch")
    one = agent("--nproc-per-node=2", WORKER, "reduce", NCCL_SOCKET_IFNAME="nowhere0")
    assert one.end() == 0, one.text()
    assert "pytorchjob-agent: warning: interfaces: NCCL_SOCKET_IFNAME: there is no interface 'nowhere0'" in one.text()
