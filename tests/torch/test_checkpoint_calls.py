"""`load`, `save` and `wait` of checkpoint.distributed: other numbers of ranks, errors, and what goes on meanwhile."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import staging as torch_staging
from torch.distributed.checkpoint.api import CheckpointException

from pytorchjob_agent import take_over
from pytorchjob_agent.checkpoint import distributed as checkpoint
from pytorchjob_agent.checkpoint.staging import Staging
from pytorchjob_agent.contract.checkpoint_rules import CHECKPOINT, CheckpointRules
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
_LONGEST = 250
"""Seconds for one training, on a machine with much else to do."""
pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(800),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),  # torch 2.4 about itself
    pytest.mark.filterwarnings("ignore:You are using `torch.load`:FutureWarning"),
]
WITH_OPTIMIZER = {"optimizer": torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)}


def train(steps: int, *directories: Path) -> list[dict[str, Any]]:
    """What each rank of a training has at its end; each has a directory."""
    port = str(free_port())
    common = {**os.environ, "PYTHONPATH": f"{ROOT}/operator", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    given = {"WORLD_SIZE": str(len(directories)), "STEPS": str(steps), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "dcp_training.py")],
            env={**common, **given, "RANK": str(rank), "DIRECTORY": str(directory)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, directory in enumerate(directories)
    ]
    try:
        ended = [(rank.communicate(timeout=_LONGEST), rank.returncode) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert all(code == 0 for _, code in ended), ended
    return [json.loads(out) for (out, _), _ in ended]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one rank has after six steps."""
    (alone,) = train(6, tmp_path_factory.mktemp("alone"))
    return alone


@pytest.mark.long
def test_other_numbers_of_ranks_continue_with_the_same_values(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for rank in train(3, a, b):
        assert (rank["first"], rank["steps"]) == (0, ["step-2", "step-3"])
    shutil.copytree(b, a, dirs_exist_ok=True)  # as the agents do it before a round
    (alone,) = train(5, a)
    assert (alone["first"], alone["steps"]) == (3, ["step-4", "step-5"])
    both = train(6, tmp_path / "empty", a)
    assert [rank["first"] for rank in both] == [5, 5], "the rank that lacks the files has them from the other"
    for rank in both:
        assert {**rank, "first": 0} == {**undisturbed, "steps": ["step-5", "step-6"]}


def test_ranks_bring_their_parts_together(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    """No agent restores anything without the coordinator."""
    a, b = tmp_path / "a", tmp_path / "b"
    train(4, a, b)
    (a / "step-5").mkdir()  # a save that was cut
    (a / "step-5" / "__0_1.whole").touch()
    (a / "step-9").mkdir()  # of a torch whose files this one cannot read
    (a / "step-9" / ".metadata").write_bytes(b"?")
    for rank in train(6, b, a):
        rank["steps"] = [step for step in rank["steps"] if step != "step-9"]
        assert {**rank, "first": 0} == {**undisturbed, "steps": ["step-5", "step-6"]}
        assert rank["first"] == 4


@pytest.fixture(scope="module")
def group() -> None:
    """One rank in this process. It stays: to destroy gloo's groups of torch 2.4 may hang for ever."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


@pytest.fixture
def alone(group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The script of one rank begins; returns the directory of its job."""
    rules = CheckpointRules(str(tmp_path / "checkpoints"), 10**8)
    monkeypatch.setenv(CHECKPOINT, rules.to_json())
    checkpoint._saver.__init__()  # type: ignore[misc]
    yield Path(rules.directory)
    checkpoint.wait()


class Held:
    """A value whose writing waits, or fails."""

    def __init__(self) -> None:
        self.write = threading.Event()
        self.fails = False

    def __deepcopy__(self, memo: object) -> "Held":
        return self

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        assert self.write.wait(100)
        if self.fails:
            raise OSError("the disk is full")
        return (int, (0,))


def test_what_changes_after_the_call_is_not_in_the_checkpoint(alone: Path) -> None:
    held, weight, numbers = Held(), torch.ones(4), [1]
    checkpoint.save({"held": held, "weight": weight, "numbers": {"list": numbers}}, 7)
    weight += 1
    assert not (alone / "step-7").exists(), "the call has not waited"
    held.write.set()
    checkpoint.wait()
    state: dict[str, Any] = {"held": 1, "weight": torch.zeros(4), "numbers": {"list": [0]}}
    assert checkpoint.load(state) == 7
    assert (state["held"], state["weight"].tolist(), state["numbers"]) == (0, [1.0] * 4, {"list": [1]})


def test_each_save_has_the_values_of_its_call_in_memory_that_stays(alone: Path) -> None:
    weight, more = torch.ones(4), torch.zeros(2, 3)
    for step in (1, 2, 3):
        state = {"weight": weight, "transposed": more.T} if step > 1 else {"weight": weight}
        checkpoint.save(state, step)
        weight += 1
        more += 1
    checkpoint.wait()
    loaded: dict[str, Any] = {"weight": torch.zeros(4), "transposed": torch.ones(3, 2)}
    assert checkpoint.load(loaded) == 3
    assert (loaded["weight"].tolist(), loaded["transposed"].tolist()) == ([3.0] * 4, [[2.0, 2.0]] * 3)


def test_memory_is_allocated_by_the_first_save_and_freed_at_the_end() -> None:
    staging, weight = Staging(), torch.ones(1000)
    if not hasattr(torch_staging, "DefaultStager"):  # an older torch
        assert staging.options() == {}
        return
    stager = staging.options()["async_stager"]
    first = stager.stage({"weight": weight})["weight"]
    place = first.data_ptr()
    weight += 1
    again = staging.options()["async_stager"].stage({"weight": weight})["weight"]
    assert (again.data_ptr(), again[0].item()) == (place, 2.0)
    assert place != weight.data_ptr()
    staging.close()
    assert staging.options()["async_stager"] is not stager


def test_the_next_call_raises_what_went_wrong(alone: Path) -> None:
    held = Held()
    held.fails = True
    held.write.set()
    checkpoint.save({"held": held}, 1)
    with pytest.raises(CheckpointException, match="the disk is full"):
        checkpoint.save({"value": 2}, 2)
    checkpoint.save({"value": 3}, 3)
    checkpoint.wait()
    assert {path.name for path in alone.iterdir()} == {"step-3", ".step-1.directory", ".step-1.new"}


def test_a_superseded_round_saves_nothing_more(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCHJOB_JOB", "job-a")
    monkeypatch.setenv("PYTORCHJOB_ROUND_ID", "3.7")
    checkpoint.save({"value": 1}, 0)
    checkpoint.wait()
    monkeypatch.setenv("PYTORCHJOB_ROUND_ID", "3.8")
    take_over(alone)
    monkeypatch.setenv("PYTORCHJOB_ROUND_ID", "3.7")
    checkpoint.save({"value": 1}, 1)
    with pytest.raises(checkpoint.FencedError, match=r"round 3\.8 of this job has taken it over"):
        checkpoint.wait()
    assert [path.name for path in alone.glob("step-*")] == ["step-0"]


def test_a_second_directory_has_its_own_steps(alone: Path, tmp_path: Path) -> None:
    checkpoint.save({"value": 1}, 5)
    checkpoint.save({"value": 2}, 3, tmp_path / "best", keep=1)
    checkpoint.wait()
    state = {"value": 0}
    assert [checkpoint.load(state, each) for each in (None, tmp_path / "best", tmp_path / "none")] == [5, 3, 0]
    assert state == {"value": 2}


def in_a_file() -> None:
    Path("file").touch()
    checkpoint.save({"value": 1}, 1, "file/below")


def without_a_group() -> None:
    world, dist.GroupMember.WORLD = dist.GroupMember.WORLD, None
    try:
        checkpoint.save({"value": 1}, 1)
    finally:
        dist.GroupMember.WORLD = world


def twice(*steps: int) -> None:
    for step in steps:
        checkpoint.save({"value": 1}, step)


def without_load() -> None:
    checkpoint.save({"value": 1}, 5000)
    checkpoint.wait()
    checkpoint._saver.__init__()  # type: ignore[misc]
    checkpoint.save({"value": 1}, 10)


def without_directory() -> None:
    del os.environ[CHECKPOINT]
    checkpoint.load({"value": 1})


BAD: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no directory": (without_directory, ValueError, "PYTORCHJOB_CHECKPOINT is not set; set spec.agent.checkpoint"),
    "a directory that cannot be written": (
        in_a_file,
        OSError,
        "no checkpoint can be saved in .*/file/below: Not a dir",
    ),
    "no process group": (without_a_group, RuntimeError, "call torch.distributed.init_process_group before it"),
    "a step twice": (lambda: twice(4, 4), ValueError, "step 4 is saved already in "),
    "a step before the last": (lambda: twice(4, 3), ValueError, "step 3 comes before step 4, .*: call load before"),
    "a directory of another run": (without_load, ValueError, "step 10 comes before step 5000"),
    "a negative step": (lambda: twice(-1), ValueError, "step: -1 is not a whole number from 0 on"),
    "a step that is no int": (lambda: checkpoint.save({"value": 1}, True), ValueError, "step: True is not a whole"),
    "nothing to keep": (lambda: checkpoint.save({"value": 1}, 1, keep=0), ValueError, "keep: 0 is not a whole number"),
    "no dict": (lambda: checkpoint.save([1], 1), TypeError, "expected a dict such as .*, not list"),  # type: ignore[arg-type]
    "an empty dict": (lambda: checkpoint.load({}), ValueError, "the dict is empty"),
    "a key that is no str": (lambda: checkpoint.load({1: 2}), TypeError, "the key 1 is not a str"),  # type: ignore[dict-item]
    "an optimizer alone": (lambda: checkpoint.load(WITH_OPTIMIZER), ValueError, "there are 0 modules"),
    "an optimizer of two modules": (
        lambda: checkpoint.save({**WITH_OPTIMIZER, "a": nn.Linear(1, 1), "b": nn.Linear(1, 1)}, 1),
        ValueError,
        "there are 2 modules",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_an_error_that_says_what_to_do(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    call, error, words = BAD[case]
    with pytest.raises(error, match=re.compile(words)):
        call()
