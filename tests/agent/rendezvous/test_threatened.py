"""Real agents and a script that saves on request: a threatened pod makes them save at once, and training continues."""

import re
from dataclasses import replace

import pytest

from pytorchjob_operator.coordinator_update import Sync
from tests.waiting import until

from .conftest import JOB, Job

pytestmark = [pytest.mark.torch]
CORDONED = "its node n1 is cordoned"


def threaten(job: Job, index: int) -> None:
    """The operator's next pass finds the pod threatened."""
    assert job.coordinator is not None
    job.expected = {**job.expected, index: replace(job.expected[index], threat=CORDONED)}
    job.coordinator.apply(JOB, Sync(job.policy, job.expected))


def test_all_ranks_save_the_same_step_and_train_on_in_their_round(job: Job) -> None:
    pods = job.start_all(STEPS="150", LINGER="10")
    for pod in pods:
        pod.says("step 3 ")
    until(lambda: job.report().step)
    threaten(job, 1)
    for pod in pods:
        pod.says(f"the workers are asked to save, and continue: pod-1: {CORDONED}")
        pod.says("saved ")
    until(lambda: "CheckpointSaved" in [event.reason for event in job.events])
    job.hurry()
    assert job.end() == [0, 0]
    texts = [pod.text() for pod in pods]
    saved = [re.findall(r"saved (\d+)", text) for text in texts]
    assert len(saved[0]) == 1
    assert saved[0] == saved[1]
    assert [text.count("works in round") for text in texts] == [1, 1]
    assert [event.reason for event in job.events].count("PodThreatened") == 1
