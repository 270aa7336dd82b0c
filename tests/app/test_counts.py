"""What becomes of jobs, as metrics: counted once, by the leader, and only what happened before its eyes."""

from collections.abc import Iterator

import pytest

from pytorchjob_operator.app.counts import JobCounts, by_phase
from pytorchjob_operator.app.metrics import Metrics
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.model import ConditionType, JobStatus, PyTorchJob
from pytorchjob_operator.names import LossCause
from pytorchjob_operator.observed import Pod, PodPhase
from tests.factories import condition, make_job, make_pod

NEW = make_job()
TAKEN_UP = make_job(status=JobStatus(conditions=(condition(ConditionType.CREATED),)))
RUNNING = make_job(status=JobStatus(conditions=(*TAKEN_UP.status.conditions, condition(ConditionType.RUNNING))))
ENDED = make_job(status=JobStatus(conditions=(*TAKEN_UP.status.conditions, condition(ConditionType.FAILED))))
RESTARTING = make_job(
    status=JobStatus(conditions=TAKEN_UP.status.conditions, replacing=("uid-worker-0", "uid-of-one-that-is-gone"))
)


class Desk:
    """The counts, and what they amount to."""

    def __init__(self, *pods: Pod, leads: bool = True) -> None:
        self.metrics = Metrics()
        store = Store[Pod](lambda: 0.0)
        for pod in pods:
            store.put(pod)
        self.counts = JobCounts(self.metrics, store, lambda: leads)

    def life(self, *versions: PyTorchJob | None) -> None:
        """A job goes from version to version."""
        for old, new in zip((None, *versions), versions, strict=False):
            self.counts.changed(old, new)

    def counted(self) -> dict[str, float]:
        """The counters of jobs and pods that are not 0."""
        return dict(self._samples())

    def _samples(self) -> Iterator[tuple[str, float]]:
        for family in self.metrics.registry.collect():
            for sample in family.samples:
                if sample.value and "job_namespace" in sample.labels:
                    yield sample.name + sample.labels.get("cause", ""), sample.value


def test_a_life_is_counted_once() -> None:
    desk = Desk()
    desk.life(NEW, TAKEN_UP, RUNNING, ENDED, ENDED, None)
    prefix = "training_operator_jobs_"
    assert desk.counted() == {f"{prefix}{what}_total": 1.0 for what in ("created", "failed", "deleted")}


@pytest.mark.parametrize(
    "versions",
    [
        pytest.param((ENDED, ENDED), id="a job that had ended before this process began"),
        pytest.param((NEW, None), id="a job that was deleted before the operator accepted it"),
    ],
)
def test_what_nobody_saw_happen_is_not_counted(versions: tuple[PyTorchJob | None, ...]) -> None:
    desk = Desk()
    desk.life(*versions)
    assert desk.counted() == {}


def test_a_standby_counts_nothing() -> None:
    desk = Desk(leads=False)
    desk.life(NEW, TAKEN_UP, ENDED, None)
    assert desk.counted() == {}


def test_pods_that_are_made_again_count_by_their_cause() -> None:
    desk = Desk(make_pod("worker-0", PodPhase.FAILED, cause=LossCause.OOM_KILLED))
    desk.life(TAKEN_UP, RESTARTING)
    desk.counts.lost("ns", [LossCause.PREEMPTED, LossCause.PREEMPTED])
    pods = "pytorchjob_operator_pod_restarts_total"
    assert desk.counted() == {
        "training_operator_jobs_restarted_total": 1.0,
        f"{pods}OOMKilled": 1.0,
        f"{pods}Unknown": 1.0,
        f"{pods}Preempted": 2.0,
    }


@pytest.mark.parametrize(
    ("counter", "labels"),
    [
        ("training_operator_jobs_failed_total", {"framework": "pytorch"}),
        ("pytorchjob_operator_pod_restarts_total", {"cause": "OOMKilled"}),
        ("pytorchjob_operator_rounds_news_total", {"reason": "WorkersHang"}),
    ],
)
def test_the_counters_of_a_namespace_begin_at_0(counter: str, labels: dict[str, str]) -> None:
    desk = Desk()
    desk.life(NEW)
    assert desk.metrics.registry.get_sample_value(counter, {"job_namespace": "ns", **labels}) == 0.0


def test_jobs_are_counted_by_phase() -> None:
    assert by_phase([NEW, TAKEN_UP, RUNNING, ENDED]) == {
        "Pending": 2,
        "Running": 1,
        "Restarting": 0,
        "Suspended": 0,
        "Succeeded": 0,
        "Failed": 1,
    }
