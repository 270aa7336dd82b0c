"""Which processes of a container become members of the job's rounds, and as what."""

import sys
from typing import Any

import pytest

from pytorchjob_agent.command.startup.pytorchjob_members import (
    AGENT,
    FIRST_PROCESS_PARENT,
    LAUNCHER,
    OTHER,
    PLACE,
    WORKER,
    forms_jobs_group,
    kind_of,
    read,
    torchruns_arguments,
)
from pytorchjob_agent.contract import environment

BIN = "/usr/local/bin"
PYTHON = sys.executable


@pytest.mark.parametrize(
    ("argv", "first", "kind"),
    [
        pytest.param([f"{BIN}/torchrun", "train.py"], True, LAUNCHER, id="torchrun"),
        pytest.param([f"{BIN}/torchrun", "train.py"], False, LAUNCHER, id="torchrun below a shell"),
        pytest.param(["-m", "torch.distributed.run", "x"], True, LAUNCHER, id="as a module"),
        pytest.param(["-mtorch.distributed.run", "x"], True, LAUNCHER, id="as a module, in one word"),
        pytest.param(["-u", "-X", "dev", "-m", "torch.distributed.launch"], True, LAUNCHER, id="the older name"),
        pytest.param(["/lib/torch/distributed/run.py", "x"], True, LAUNCHER, id="its file"),
        pytest.param([f"{BIN}/accelerate", "launch", "x"], True, LAUNCHER, id="accelerate"),
        pytest.param([f"{BIN}/accelerate-launch", "x"], True, LAUNCHER, id="accelerate, in one word"),
        pytest.param(["-m", "accelerate.commands.launch", "x"], True, LAUNCHER, id="accelerate as a module"),
        pytest.param([f"{BIN}/fabric", "run", "x"], True, LAUNCHER, id="fabric"),
        pytest.param([f"{BIN}/accelerate", "config"], True, OTHER, id="another command of accelerate"),
        pytest.param(["train.py"], True, WORKER, id="a script"),
        pytest.param(["-m", "my.train"], True, WORKER, id="a module"),
        pytest.param(["train.py"], False, OTHER, id="a script below a shell"),
        pytest.param([f"{BIN}/deepspeed", "train.py"], True, OTHER, id="a launcher of its own"),
        pytest.param([f"{BIN}/conda", "run", "torchrun", "x"], True, OTHER, id="what starts a launcher"),
        pytest.param(["-m", "pytorchjob_agent", "run", "--", "x"], True, AGENT, id="the agent"),
        pytest.param(["-m", "pytorchjob_agent.standalone.api"], False, AGENT, id="a part of the agent"),
        pytest.param([f"{BIN}/pytorchjob-agent", "run", "--", "x"], True, AGENT, id="the agent's command"),
    ],
)
def test_what_a_process_is(argv: list[str], first: bool, kind: str) -> None:
    target = read(argv)
    assert target is not None
    assert kind_of(target, first=first) == kind


@pytest.mark.parametrize(
    "argv", [["-c", "import torch"], ["-cpass"], [], ["-"], ["-u"], ["-m"]], ids=lambda argv: " ".join(argv) or "none"
)
def test_a_text_or_a_console_is_no_program(argv: list[str]) -> None:
    assert read(argv) is None


@pytest.mark.parametrize(
    ("argv", "arguments"),
    [
        pytest.param(["train.py", "--lr", "1"], ["train.py", "--lr", "1"], id="a script"),
        pytest.param(["-u", "-m", "my.train", "-v"], ["--module", "my.train", "-v"], id="a module, with torchrun's -u"),
        pytest.param(
            ["-O", "-W", "error", "train.py"],
            ["--no-python", PYTHON, "-O", "-W", "error", "train.py"],
            id="options of the interpreter",
        ),
        pytest.param(["-B", "-m", "my.train"], ["--no-python", PYTHON, "-B", "-m", "my.train"], id="and a module"),
    ],
)
def test_a_worker_is_started_as_its_command_says(argv: list[str], arguments: list[str]) -> None:
    target = read(argv)
    assert target is not None
    assert torchruns_arguments(target) == ["--nproc-per-node=1", *arguments]


POD = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}


@pytest.mark.parametrize(
    ("given", "now", "forms"),
    [
        pytest.param({"backend": "gloo"}, POD, True, id="by the variables alone"),
        pytest.param({"init_method": "env://"}, POD, True, id="said explicitly"),
        pytest.param({"init_method": "tcp://job-master-0:23456", "rank": 1, "world_size": 3}, POD, True, id="by tcp"),
        pytest.param({"init_method": "file:///shared/x", "rank": 1, "world_size": 3}, POD, False, id="by a file"),
        pytest.param({"store": object(), "rank": 1, "world_size": 3}, POD, False, id="by a store of its own"),
        pytest.param({"rank": 0, "world_size": 1}, POD, False, id="a group of one"),
        pytest.param({}, {**POD, "RANK": "5"}, False, id="it has changed its rank"),
        pytest.param({}, {**POD, "LOCAL_RANK": "0"}, False, id="a launcher of its own has started it"),
        pytest.param({}, {"RANK": "1"}, False, id="the pod has no such variables any more"),
    ],
)
def test_only_the_group_of_the_job_counts(given: dict[str, Any], now: dict[str, str], forms: bool) -> None:
    assert forms_jobs_group(given, POD, now) is forms


def test_its_literals_are_the_contracts() -> None:
    """Every process of a container waits for that file, and the contract's imports would take longer than it does."""
    names = environment.RANK, environment.WORLD_SIZE, environment.MASTER_ADDR
    assert (names, environment.FIRST_PROCESS_PARENT) == (PLACE, FIRST_PROCESS_PARENT)
