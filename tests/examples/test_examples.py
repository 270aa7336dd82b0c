"""The examples, run as their jobs run them: the same scripts, as processes of this machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]

ROOT = Path(__file__).parents[2]
TORCHRUN = ("-m", "torch.distributed.run")
AGENT = ("-m", "pytorchjob_agent", "run", "--")


def start(*words: str, **env: str) -> subprocess.Popen[str]:
    """Start Python from the root of the repository."""
    everything = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "OMP_NUM_THREADS": "1", **env}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-u", *words], cwd=ROOT, env=everything, stdout=pipe, stderr=subprocess.STDOUT, text=True
    )


def outputs(*processes: subprocess.Popen[str]) -> list[str]:
    """Return what they printed, when all have succeeded."""
    printed = [process.communicate(timeout=280)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(printed)
    return printed


THREADS = """
import os, runpy, sys
runpy.run_path(sys.argv.pop(), run_name="__main__")
names = [open(f"/proc/self/task/{each}/comm").read().strip() for each in os.listdir("/proc/self/task")]
print("left:", *[name for name in names if "gloo" in name])
"""
WITH_DDP = [path for path in sorted(ROOT.glob("examples/*/*.py")) if "DistributedDataParallel(" in path.read_text()]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="only Linux shows the threads of a process")
def test_no_thread_of_gloo_outlives_the_process_group() -> None:
    alone = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "1", "RANK": "0"}
    (printed,) = outputs(start("-c", THREADS, "examples/three-machines/train.py", **alone, GROUP_RANK="0"))
    assert printed.splitlines()[-1] == "left:"


@pytest.mark.parametrize("script", WITH_DDP, ids=[path.parent.name for path in WITH_DDP])
def test_an_example_with_ddp_imports_before_the_group_what_would_keep_the_groups_threads(script: Path) -> None:
    assert re.search(r"^ *import torch\._dynamo ", script.read_text(), re.MULTILINE)


def pods(world: int, *words: str, **env: str) -> list[str]:
    """Run one process per pod with v1's environment."""
    port = str(free_port())
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(world), **env}
    common |= {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": port, "PET_NNODES": str(world)}
    ranks = [{"RANK": str(rank), "PET_NODE_RANK": str(rank)} for rank in range(world)]
    return outputs(*[start(*words, **{**common, **rank}) for rank in ranks])


def accuracy(text: str) -> float:
    """Return the accuracy that a run printed."""
    found = re.search(r"accuracy=([\d.]+)", text)
    assert found, text
    return float(found[1])


@pytest.mark.long
def test_digits_are_learned_as_well_by_one_process_as_by_three() -> None:
    alone = accuracy(outputs(start("examples/digits/train.py"))[0])
    together = accuracy(pods(3, *AGENT, "examples/digits/train.py", PET_NPROC_PER_NODE="1")[0])
    assert alone > 0.95
    assert together == pytest.approx(alone, abs=0.01)


@pytest.mark.long
def test_digits_resume_from_their_checkpoint(tmp_path: Path) -> None:
    train = ("--nproc-per-node=2", "examples/digits/train.py")
    first = outputs(start(*TORCHRUN, *train, EPOCHS="2", CHECKPOINT_DIR=str(tmp_path)))[0]
    second = outputs(start(*AGENT, *train, EPOCHS="3", CHECKPOINT_DIR=str(tmp_path)))[0]
    assert "epoch=1" in first
    assert "resumed from" in second
    assert "epoch=1 " not in second
    assert "epoch=2" in second


@pytest.mark.long
def test_digits_without_torchrun_have_a_rank_per_pod() -> None:
    printed = pods(2, "examples/digits/train.py", EPOCHS="1")
    assert "world_size=2" in printed[0]
    assert "epoch=" not in printed[1]


@pytest.mark.long
def test_every_rank_sends_and_receives() -> None:
    printed = pods(4, "examples/simple/send_recv.py")
    assert "rank 0 received 3 from rank 3" in printed[0]
    assert "rank 3 received 30 from rank 0" in printed[3]


@pytest.mark.long
def test_torchrun_takes_its_arguments_from_the_environment() -> None:
    printed = pods(2, *TORCHRUN, "examples/torchrun/train.py", PET_NPROC_PER_NODE="1")
    assert "rank=1 local_rank=0 node=1 world_size=2 sum=1" in printed[1]


@pytest.mark.long
def test_two_processes_in_each_of_two_pods() -> None:
    printed = pods(2, *TORCHRUN, "examples/multi-process/train.py", PET_NPROC_PER_NODE="2")
    assert "rank=3 local_rank=1 node=1 world_size=4 sum=6" in printed[1]


def test_elastic_members_go_on_from_a_checkpoint_and_learn(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, 3)], lr=0.1, momentum=0.5).state_dict()
    torch.save({"step": 17, "model": {"weight": torch.zeros(1, 3)}, "optimizer": optimizer}, tmp_path / "elastic.pt")
    env = {"CHECKPOINT_DIR": str(tmp_path), "STEP_SECONDS": "0"}
    printed = outputs(start(*AGENT, "--nproc-per-node=2", "examples/elastic/train.py", **env))[0]
    assert "rank=1 world_size=2 from_step=17" in printed
    losses = {int(step): float(loss) for step, loss in re.findall(r"step=(\d+) members=2 loss=(\S+)", printed)}
    assert sorted(losses) == list(range(18, 41))
    assert losses[40] < losses[18] / 100
    assert list(tmp_path.iterdir()) == []


def test_an_ordinary_script_continues_from_its_checkpoint(tmp_path: Path) -> None:
    env = {"CHECKPOINT_DIR": str(tmp_path), "STEP_SECONDS": "0"}
    model = {"module.weight": torch.ones(1, 3), "module.bias": torch.zeros(1)}
    optimizer = torch.optim.SGD([torch.zeros(1, 3), torch.zeros(1)], lr=0.1).state_dict()
    torch.save({"step": 40, "model": model, "optimizer": optimizer}, tmp_path / "latest.pt")
    printed = outputs(start(*AGENT, "--nproc-per-node=2", "examples/checkpoint/train.py", **env))[0]
    assert "rank=1 world_size=2 from_step=40" in printed
    assert {int(step) for step in re.findall(r"step=(\d+) loss=", printed)} == set(range(41, 61))
