"""Real agents and a script that compiles: a new pod finds in its caches what another pod has compiled."""

import shutil
import sys
from pathlib import Path

import pytest

from pytorchjob_agent.contract.cache_rules import CACHES, CacheRules

from .conftest import Job, Pod, end

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]
COMPILES = 300.0
"""Seconds that two pods have for ten CPU seconds each of imports and compiling, beside other tests."""
SCRIPT = (sys.executable, "-m", "pytorchjob_agent", "run", "--", str(Path(__file__).parent / "compiled.py"))


def disk(job: Job, index: int, uid: str = "u") -> Path:
    """The directory of one pod's caches."""
    return job.folder / f"caches-{index}-{uid}"


def start(job: Job, index: int, uid: str = "u", image: str = "training:1", **env: str) -> Pod:
    """Start a pod with a directory of its own for caches."""
    rules = CacheRules(str(disk(job, index, uid)), image)
    temporary = job.folder / f"temporary-{index}-{uid}"
    temporary.mkdir()
    return job.start(index, uid, SCRIPT, STEPS="600", TMPDIR=str(temporary), **{CACHES: rules.to_json()}, **env)


def lose(job: Job, index: int) -> None:
    """The pod is gone with its caches."""
    end(job.pods[index])
    shutil.rmtree(disk(job, index))


@pytest.mark.parametrize(
    ("lost", "env"),
    [
        pytest.param(1, {}, id="a step of torch's own calls"),
        pytest.param(0, {"KERNEL": "1"}, id="rank 0, and a step that a C++ compiler makes", marks=pytest.mark.long),
    ],
)
def test_a_new_pod_finds_what_another_has_compiled(job: Job, lost: int, env: dict[str, str]) -> None:
    job.expected = {}
    pods = [start(job, index, **env) for index in range(2)]
    for pod in pods:
        pod.says("compiled after .*: 0 hits, 1 misses", COMPILES)
        pod.says("step 30 ")
        pod.forget()
    lose(job, lost)
    new = start(job, lost, "v", **env)
    new.says("fetched [1-9][0-9]* files of caches", COMPILES)
    for pod in (pods[1 - lost], new):
        pod.says("compiled after .*: 1 hits, 0 misses", COMPILES)


@pytest.mark.long
def test_caches_of_another_image_are_not_taken(job: Job) -> None:
    job.expected = {}
    pods = [start(job, index) for index in range(2)]
    pods[0].says("step 30 ")
    lose(job, 1)
    new = start(job, 1, "v", image="training:2")
    new.says("compiled after .*: 0 hits, 1 misses", COMPILES)
    assert "files of caches" not in new.text()
