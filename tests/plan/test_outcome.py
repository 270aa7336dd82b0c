"""How the job stands as a whole, with v1's messages to the letter (contract A.9, A.10)."""

from typing import Any

import pytest

from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.observed import Pod, PodPhase
from pytorchjob_operator.plan import outcome, replicas
from pytorchjob_operator.plan.outcome import Counts, JobPhase, Outcome
from tests.factories import full_job, make_pod, pods, workers

RUN, DONE, BAD, WAIT = PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.PENDING
ALONE: dict[str, Any] = {"master": None, "workers": 2}
ELASTIC = {**ALONE, "elasticPolicy": {"minReplicas": 1, "maxReplicas": 2}}


def decide(seen: tuple[Pod, ...], **case: Any) -> Outcome:
    job = full_job(**case)
    compared = replicas.compare(job, seen)
    return outcome.decide(job, compared, outcome.count(job, compared))


@pytest.mark.parametrize(
    ("case", "seen", "phase", "message"),
    [
        pytest.param({}, (), JobPhase.PENDING, "PyTorchJob x waits for its pods to run.", id="nothing there yet"),
        pytest.param(
            {}, pods(WAIT, RUN), JobPhase.PENDING, "PyTorchJob x waits for its pods to run.", id="Master waits"
        ),
        pytest.param({}, pods(RUN, WAIT), JobPhase.RUNNING, "PyTorchJob x is running.", id="the Master runs"),
        pytest.param(ALONE, workers(WAIT, RUN), JobPhase.RUNNING, "PyTorchJob ns/x is running.", id="any worker runs"),
        pytest.param(
            {},
            pods(DONE, RUN),
            JobPhase.SUCCEEDED,
            "PyTorchJob x is successfully completed.",
            id="the Master alone decides",
        ),
        pytest.param(
            {"restart": "Never"},
            pods(DONE, BAD),
            JobPhase.SUCCEEDED,
            "PyTorchJob x is successfully completed.",
            id="success is looked at before failure",
        ),
        pytest.param(
            {}, pods(RUN, DONE), JobPhase.RUNNING, "PyTorchJob x is running.", id="workers alone do not end it"
        ),
        pytest.param(
            ALONE, workers(RUN, DONE), JobPhase.RUNNING, "PyTorchJob ns/x is running.", id="one worker of two"
        ),
        pytest.param(
            ALONE,
            workers(DONE, DONE),
            JobPhase.SUCCEEDED,
            "PyTorchJob ns/x successfully completed.",
            id="all workers succeeded",
        ),
        pytest.param(
            ELASTIC,
            workers(RUN, DONE),
            JobPhase.SUCCEEDED,
            "PyTorchJob ns/x successfully completed.",
            id="elastic: any one worker is enough",
        ),
        pytest.param(
            {"restart": "Never"},
            pods(RUN, BAD),
            JobPhase.FAILED,
            "PyTorchJob x is failed because 1 Worker replica(s) failed.",
            id="Never: one failed worker fails the job",
        ),
        pytest.param(
            {"restart": "Never"},
            pods(BAD, BAD),
            JobPhase.FAILED,
            "PyTorchJob x is failed because 1 Master replica(s) failed.",
            id="the Master is blamed first",
        ),
        pytest.param(
            {"restart": "Never", "workers": 2},
            (*pods(RUN, BAD), make_pod("worker-1", deleting=True)),
            JobPhase.FAILED,
            "PyTorchJob x is failed because 2 Worker replica(s) failed.",
            id="Never: a terminating pod has failed too",
        ),
        pytest.param(
            {"restart": "Never", **ALONE},
            workers(DONE, BAD),
            JobPhase.FAILED,
            "PyTorchJob x is failed because 1 Worker replica(s) failed.",
            id="one succeeded and one failed: failed, not both as under v1",
        ),
        pytest.param(
            {},
            pods(RUN, BAD),
            JobPhase.RESTARTING,
            "job x is restarting because Worker replica(s) failed.",
            id="OnFailure: a failed pod is made again",
        ),
        pytest.param(
            {},
            (*pods(RUN), make_pod("worker-0", deleting=True)),
            JobPhase.RESTARTING,
            "PyTorchJob x is restarting because 1 Worker replica(s) failed.",
            id="OnFailure: a pod that is being deleted",
        ),
        pytest.param(
            {}, pods(RUN), JobPhase.RUNNING, "PyTorchJob x is running.", id="a pod that vanished is not a failure"
        ),
        pytest.param(
            {"restart": "Never"},
            (*pods(RUN, RUN), make_pod("worker-5", BAD)),
            JobPhase.RUNNING,
            "PyTorchJob x is running.",
            id="a surplus pod may fail",
        ),
    ],
)
def test_decide(case: dict[str, Any], seen: tuple[Pod, ...], phase: JobPhase, message: str) -> None:
    found = decide(seen, **case)
    assert (found.phase, found.message) == (phase, message)
    assert (found.failure is not None) == (phase is JobPhase.FAILED)


def test_pending_and_surplus_pods_count_nowhere() -> None:
    job = full_job(workers=4)
    seen = (*pods(RUN, RUN, DONE, BAD, WAIT), make_pod("worker-8"))
    counts = outcome.count(job, replicas.compare(job, seen))
    assert counts[ReplicaType.MASTER] == Counts(wanted=1, active=1)
    assert counts[ReplicaType.WORKER] == Counts(wanted=4, active=1, succeeded=1, failed=1)
