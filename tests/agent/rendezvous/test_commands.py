"""The life of a job whose command knows nothing of the agent, with each form of command that becomes a member.

A worker is killed, a pod is killed, a worker hangs, and a pod is told to go: each time all go on from the script's own
last save, in the same containers but for that of the lost pod.
"""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytorchjob_agent.command import install
from pytorchjob_agent.contract.environment import FIRST_PROCESS_PARENT
from tests.agent.rendezvous.conftest import Job, Pod, end
from tests.local.test_progress import installed
from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.needs_hangs, pytest.mark.timeout(400)]

SCRIPT = """
import os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist

folder = Path(sys.argv[1])
saved = folder / "checkpoint.pt"
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
step = torch.load(saved)["step"] if saved.exists() else 0
print(f"rank {rank} of {world} is process {os.getpid()} from step {step}", flush=True)
while True:
    ends = torch.tensor([float((folder / "end").exists())])
    dist.all_reduce(ends)
    if ends:
        break
    step += 1
    print(f"step {step}/100000 loss=0.5", flush=True)
    if rank == 0 and step % 5 == 0:
        torch.save({"step": step}, folder / "new.pt")
        os.replace(folder / "new.pt", saved)
    if rank == 1 and (folder / "hang").exists():
        (folder / "hang").unlink()
        time.sleep(100000)
    time.sleep(0.1)
"""
AT_WORK = r"rank \d of 2 is process (\d+) from step "
AGAIN = AT_WORK + r"[1-9]\d*\n"
UV = shutil.which("uv") or ""
PLACE = "--machine_rank=$RANK --main_process_ip=$MASTER_ADDR --main_process_port=$MASTER_PORT"
ACCELERATE = f"--multi_gpu --num_machines=2 --num_processes=2 --mixed_precision=no --dynamo_backend=no {PLACE}"
FABRIC = "--accelerator=cpu --devices=1 --num-nodes=2 --node-rank=$RANK --main-address=$MASTER_ADDR"
V1 = "--nnodes=2 --nproc_per_node=1 --node_rank=$RANK --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT"


def shell(text: str) -> tuple[str, ...]:
    return ("bash", "-c", text)


@pytest.fixture
def unchanged(job: Job) -> Job:
    """A job with v1's variables, and with the agent where an init container puts it."""
    agent = job.folder / "agent"
    install.install(agent)
    job.env |= {
        "PYTHONPATH": f"{agent}/pytorchjob_agent/command/startup:{agent}",
        "PYTORCHJOB_HANG": '{"idleSeconds": 12}',
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        FIRST_PROCESS_PARENT: str(os.getpid()),
    }
    (job.folder / "train.py").write_text(SCRIPT)
    return job


@contextmanager
def all_again(pods: list[Pod]) -> Iterator[None]:
    """Wait until all pods train again after what happens meanwhile, from a save."""
    for pod in pods:
        pod.forget()
    yield
    for pod in pods:
        pod.says(AGAIN)
        pod.says(r"step \d+/100000")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("torchrun", "SCRIPT"), id="torchrun"),
        pytest.param(("python", "SCRIPT"), id="python"),
        pytest.param(shell("echo first; torchrun SCRIPT; exit $?"), id="torchrun in a shell"),
        pytest.param(shell("echo first; python SCRIPT; exit $?"), id="python in a shell"),
        pytest.param(shell(f"exec python -m torch.distributed.run {V1} SCRIPT"), id="v1's variables as flags, exec"),
        pytest.param(
            (UV, "run", "--no-project", "--python", sys.executable, "SCRIPT"),
            id="uv run",
            marks=pytest.mark.skipif(not UV, reason="uv is not installed"),
        ),
        pytest.param(
            shell(f"accelerate launch {ACCELERATE} SCRIPT; exit $?"), id="accelerate", marks=installed("accelerate")
        ),
        pytest.param(
            shell(f"fabric run {FABRIC} --main-port=$MASTER_PORT SCRIPT; exit $?"),
            id="fabric",
            marks=installed("lightning"),
        ),
    ],
)
def test_an_unchanged_command_lives_through_what_happens(unchanged: Job, command: tuple[str, ...]) -> None:
    job, script = unchanged, f"{unchanged.folder}/train.py"
    words = [script if word == "SCRIPT" else word.replace("SCRIPT", f"{script} {job.folder}") for word in command]
    argv = (*words, str(job.folder)) if script in words else tuple(words)

    def start(index: int, uid: str) -> Pod:
        return job.start(index, uid, argv, RANK=str(index))

    job.expect(0, 1)
    zero, one = start(0, "u"), start(1, "u")
    zero.says(r"step 12/100000")
    assert (job.report().total, (job.report().step or 0) > 0) == (100000, True), "the script's lines show its progress"

    with all_again([zero, one]):
        os.kill(one.process_at_work(AT_WORK), signal.SIGKILL)
    assert job.report().restarts == 1

    with all_again([zero]):
        end(one)
        one = start(1, "v")
    one.says(AGAIN)
    assert job.report().restarts == 1, "a lost pod uses up none"

    with all_again([zero, one]):
        (job.folder / "hang").touch()
    hung = job.report().last_restart
    assert hung is not None
    assert hung.first is not None
    assert (job.report().restarts, hung.reason, hung.first.rank) == (2, "WorkersHang", 1)

    with all_again([zero]):
        job.expect(0, 1, terminating={1: "v-1"})
        one.process.send_signal(signal.SIGTERM)
        until(lambda: one.process.poll() is not None)
        one = start(1, "w")
    one.says(AGAIN)
    assert job.report().restarts == 2, "nor does one that goes"

    (job.folder / "end").touch()
    assert job.end() == [0, 0]
