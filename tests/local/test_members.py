"""Unchanged commands with an injected agent, as real processes: each form of command trains in the job's rounds.

The script knows nothing of the agent. One rank fails once: both are in the next round at once, in the same containers.
"""

import json
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.local.jobs import Run, job, role
from tests.local.test_progress import installed

pytestmark = [pytest.mark.torch]

Start = Callable[..., Run]

SCRIPT = """
import os, pathlib, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in (1, 2):
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"step {step}/2 loss=0.5", flush=True)
print(f"rank={dist.get_rank()} of {int(total)} arguments={sys.argv[2:]}", flush=True)
crashed = pathlib.Path(sys.argv[1])
if dist.get_rank() == 1 and not crashed.exists():
    crashed.touch()
    raise ValueError("no data")
dist.barrier()
"""
LAUNCHER = """
import sys
from torch.distributed.run import main

main(sys.argv[1:])
"""
LONG = pytest.mark.long
WITHOUT_TORCH = f"{sys.base_prefix}/bin/python3"
"""The interpreter that this environment was made of."""


def injected(name: str, command: list[str], **spec: Any) -> dict[str, Any]:
    """A job of v1, a Master and a Worker, with nothing but the agent added."""
    made = job(name, Master=role(command, 1, "OnFailure"), Worker=role(command, 1, "OnFailure"))
    made["spec"] |= {"agent": {"inject": True}, **spec}
    return made


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "launch.py").write_text(LAUNCHER)
    (tmp_path / "run.sh").write_text('echo "in a file"\npython "$@"\n')
    return tmp_path / "train.py"


def shell(text: str) -> list[str]:
    return ["bash", "-c", text]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["torchrun", "SCRIPT", "MARK"], id="torchrun"),
        pytest.param(shell("echo first && torchrun SCRIPT MARK; exit $?"), id="torchrun in a shell", marks=LONG),
        pytest.param(["python", "SCRIPT", "MARK"], id="python", marks=LONG),
        pytest.param(shell("echo first; python SCRIPT MARK; exit $?"), id="python in a shell"),
        pytest.param(["python", "-m", "torch.distributed.run", "SCRIPT", "MARK"], id="torchrun's module", marks=LONG),
        pytest.param(
            shell(
                "torchrun --nnodes=2 --node_rank=$RANK --nproc_per_node=1 --master_addr=$MASTER_ADDR"
                " --master_port=$MASTER_PORT SCRIPT MARK; exit $?"
            ),
            id="torchrun with v1's variables as flags",
            marks=LONG,
        ),
        pytest.param(
            shell("torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29400 SCRIPT MARK; exit $?"),
            id="torchrun with c10d",
            marks=LONG,
        ),
        pytest.param(shell("exec torchrun SCRIPT MARK"), id="exec", marks=LONG),
        pytest.param(["env", "A=1", "torchrun", "SCRIPT", "MARK"], id="env", marks=LONG),
        pytest.param(
            shell("python LAUNCH --nproc_per_node=1 SCRIPT MARK; exit $?"),
            id="a launcher of one's own in a shell",
            marks=LONG,
        ),
        pytest.param(["python", "-O", "-m", "train", "MARK"], id="a module, with an option of Python", marks=LONG),
        pytest.param(["sh", "RUN", "SCRIPT", "MARK"], id="a shell script", marks=LONG),
        pytest.param(
            [shutil.which("uv") or "uv", "run", "--no-project", "--python", sys.executable, "SCRIPT", "MARK"],
            id="uv run",
            marks=LONG,
        ),
        pytest.param(
            [
                "accelerate",
                "launch",
                "--multi_gpu",
                "--num_machines=2",
                "--num_processes=2",
                "--mixed_precision=no",
                "--dynamo_backend=no",
                "--rdzv_backend=static",
                "--machine_rank=$(RANK)",
                "--main_process_ip=$(MASTER_ADDR)",
                "--main_process_port=$(MASTER_PORT)",
                "SCRIPT",
                "MARK",
            ],
            id="accelerate",
            marks=[LONG, installed("accelerate")],
        ),
        pytest.param(
            [
                "fabric",
                "run",
                "--accelerator=cpu",
                "--devices=1",
                "--num-nodes=2",
                "--node-rank=$(RANK)",
                "--main-address=$(MASTER_ADDR)",
                "--main-port=$(MASTER_PORT)",
                "SCRIPT",
                "MARK",
            ],
            id="fabric",
            marks=[LONG, installed("lightning")],
        ),
    ],
)
def test_an_unchanged_command_trains_in_rounds(start: Start, script: Path, tmp_path: Path, command: list[str]) -> None:
    places = {"SCRIPT": str(script), "MARK": str(tmp_path / "mark"), "LAUNCH": str(tmp_path / "launch.py")}
    places["RUN"] = str(tmp_path / "run.sh")
    for word, path in places.items():
        command = [part.replace(word, path) for part in command]
    run = start(injected("unchanged", command), "-o", "json")
    assert run.wait() == 0, run.out + run.err
    status = json.loads(run.out)["status"]
    first = status["elastic"]["lastRestart"]["first"]
    assert (first["rank"], first["message"]) == (1, "ValueError: no data")
    assert status["elastic"]["restarts"] == 1
    assert [run.err.count(f"rank={rank} of 2 arguments=[]") for rank in (0, 1)] == [2, 2], run.err
    assert (status["progress"]["step"], status["progress"]["total"]) == (2, 2)
    assert all(not each.get("restarts") for each in status["replicaStatuses"].values())


def test_a_second_program_of_a_container_trains_as_without_the_agent(
    start: Start, script: Path, tmp_path: Path
) -> None:
    """The rounds end with the first one. It must not count as done before it has run."""
    (tmp_path / "mark").touch()
    text = f"torchrun {script} {tmp_path}/mark one && torchrun {script} {tmp_path}/mark two; exit $?"
    run = start(injected("stages", shell(text)))
    assert run.wait() == 0, run.out + run.err
    for rank in (0, 1):
        assert run.out.count(f"rank={rank} of 2 arguments=['one']") == 1
        assert run.out.count(f"rank={rank} of 2 arguments=['two']") == 1, run.out + run.err


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param(["torchrun", "--no-such-flag"], 2, id="torchrun refuses its arguments"),
        pytest.param(["torchrun", "no-such-file.py"], 2, id="Python's code for a missing script"),
        pytest.param(["python", "-c", "raise SystemExit(7)"], 7, id="a text is no member"),
        pytest.param(shell("python -c 'print(1)'; exit 5"), 5, id="nor is a shell"),
        pytest.param([WITHOUT_TORCH, "END"], 3, id="a Python without torch"),
        pytest.param(["python", "-I", "END"], 3, id="a Python that reads no PYTHONPATH"),
        pytest.param(["python", "-S", "END"], 3, id="a Python without site"),
    ],
)
def test_exit_codes_stay(start: Start, tmp_path: Path, command: list[str], code: int) -> None:
    """Of these only torchrun with a script takes part in a round."""
    (tmp_path / "end.py").write_text("import sys\nsys.exit(3)\n")
    command = [str(tmp_path / "end.py") if word == "END" else word for word in command]
    made = job("codes", Master=role(command, 1, "Never"))
    made["spec"]["agent"] = {"inject": True}
    run = start(made)
    assert run.wait() != 0
    assert ("pytorchjob-agent: round" in run.out + run.err) == ("no-such-file.py" in command)
    assert re.search(rf"exited with (code )?{code}\b", run.err), run.err


SIGNALLED = """
import os, signal, sys, time
import torch.distributed as dist

def stop(*_):
    print(f"rank={os.environ['RANK']} saves", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
dist.init_process_group("gloo")
dist.barrier()
print("trains", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("launcher", ["torchrun", pytest.param("python", marks=LONG)])
def test_a_signal_reaches_the_script_as_before(start: Start, tmp_path: Path, launcher: str) -> None:
    (tmp_path / "train.py").write_text(SIGNALLED)
    run = start(injected("signals", [launcher, str(tmp_path / "train.py")]))
    run.until("trains", 2)
    run.signal(signal.SIGTERM)
    run.wait()
    assert [run.out.count(f"rank={rank} saves") for rank in (0, 1)] == [1, 1], run.out + run.err
