"""Real agents and scripts that only save to a path: a pod is lost with its memory, and no finished save with it."""

import json
import re
import signal

import pytest
import torch

from pytorchjob_agent.contract.checkpoint_rules import CHECKPOINT
from pytorchjob_agent.contract.environment import NODE
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.rounds.values import Policy
from tests.waiting import until

from .conftest import Job
from .saving import lose, memory, rules, start

pytestmark = [pytest.mark.torch]


def newest(job: Job, index: int, owner: int, uid: str = "u") -> int:
    """The newest step that a pod holds of the owner with this rank; 0 if it holds none."""
    steps = [0]
    for manifest in memory(job, index, uid).glob(f".pytorchjob/1.*_{owner}_*/manifest.json"):
        for place, file in enumerate(json.loads(manifest.read_text())["files"]):
            if re.search(rf"latest.pt|rank{owner}.pt", file[0]):
                steps.append(torch.load(manifest.parent / str(place))["step"])
            elif (found := re.match(rf"step-(\d+)/__{owner}_0.distcp", file[0])) is not None:
                steps.append(int(found[1]))
    return max(steps)


@pytest.mark.parametrize(
    ("save", "lost"),
    [
        pytest.param("in place", 0, id="rank 0, which overwrites one file"),
        pytest.param("DCP", 0, id="rank 0 of a script that uses DCP", marks=pytest.mark.long),
        pytest.param("calls", 0, id="rank 0 of a script of three calls"),
        pytest.param("calls", 1, id="another rank of a script of three calls", marks=pytest.mark.long),
        pytest.param("ranks", 0, id="rank 0 of a script in which each rank saves", marks=pytest.mark.long),
        pytest.param("in place", 1, id="a pod that does not save", marks=pytest.mark.long),
        pytest.param("rename", 0, id="rank 0, which renames", marks=pytest.mark.long),
        pytest.param("ranks", 1, id="another rank of a script in which each rank saves", marks=pytest.mark.long),
    ],
)
def test_a_pod_lost_with_its_memory_costs_no_finished_save(job: Job, save: str, lost: int) -> None:
    job.env["STEPS"] = "90"
    job.expected = {}
    pods = [start(job, index, save) for index in range(2)]
    other, owners = pods[1 - lost], (0, 1) if save in ("ranks", "DCP", "calls") else (0,)
    pods[0].says("saved 80")
    until(lambda: all(newest(job, other.index, owner) == 80 for owner in owners))
    other.forget()
    lose(job, lost)
    new = start(job, lost, save, uid="v")
    for pod in (other, new):
        pod.says("starts from step 80\n")
    assert [pod.process.wait(100) for pod in job.pods.values()] == [0, 0]
    assert [step for step, *_ in new.steps()] == list(range(81, 91))


def test_two_pods_lost_after_each_other_cost_no_finished_save(job: Job) -> None:
    """Each rank saves, and none saves between the losses: the new pod has to fetch a copy of the other one's part."""
    job.env["STEPS"] = "300"
    job.expected = {}
    pods = [start(job, index, "ranks") for index in range(2)]
    pods[0].says("saved 80")
    until(lambda: all(newest(job, pod.index, owner) == 80 for pod in pods for owner in (0, 1)))
    pods[0].forget()
    lose(job, 1)
    one = start(job, 1, "ranks", uid="v")
    one.says("starts from step 80\n")
    until(lambda: newest(job, 1, 0, uid="v") == 80)
    lose(job, 0)
    zero = start(job, 0, "ranks", uid="v")
    zero.says("starts from step 80\n")
    assert [pod.process.wait(100) for pod in job.pods.values()] == [0, 0]


@pytest.mark.parametrize(
    ("zones", "keeper"),
    [
        pytest.param({0: "eu-1a", 1: "eu-1a", 2: "eu-1b"}, 2, id="in the other zone"),
        pytest.param({}, 1, id="on the next node, as zones are unknown", marks=pytest.mark.long),
    ],
)
def test_where_the_copy_is_kept(job: Job, zones: dict[int, str], keeper: int) -> None:
    """Rank 0 alone saves; each pod is on a node of its own."""
    job.policy, job.zones, job.expected = Policy(3, 3), zones, {}
    for index in range(3):
        start(job, index, "rename", **{NODE: f"node-{index}"})
    until(lambda: newest(job, keeper, 0) >= 40)
    assert [index for index in (1, 2) if newest(job, index, 0)] == [keeper]


def test_a_save_that_a_crash_cuts_is_never_loaded(job: Job) -> None:
    job.env["STEPS"] = "60"
    job.expected = {}
    pods = [start(job, index, "cut") for index in range(2)]
    for pod in pods:
        pod.says("starts from step 40\n")
    assert job.end() == [0, 0]
    assert "moved aside" not in pods[1].text()
    assert {step for pod in pods for step, *_ in pod.steps() if step > 79} == {80}


def test_a_pod_that_has_to_go_leaves_its_last_save(job: Job) -> None:
    """The script saves on request, and rank 0 leaves with the only file."""
    job.policy = Policy(1, 2)
    job.env |= {"STEPS": "150", "LINGER": "35"}
    zero, one = [
        job.start(index, **{CHECKPOINT: rules(job, index), "CHECKPOINT": str(memory(job, index) / "latest")})
        for index in range(2)
    ]
    zero.says("step 33 ")
    zero.process.send_signal(signal.SIGTERM)
    job.expect(1)
    assert zero.process.wait(60) == ExitCode.DRAINED
    job.hurry()
    one.says("finished at 150")
    assert [step for step, *_ in one.steps()] == list(range(1, 151)), "each step once, none lost"
