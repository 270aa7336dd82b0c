"""Which replicas should exist, and how the pods that are there compare with them."""

from collections import Counter
from typing import Any, ClassVar

import pytest

from pytorchjob_operator.model import ConditionType, JobStatus, PyTorchJob
from pytorchjob_operator.observed import Pod, PodPhase
from pytorchjob_operator.plan.replicas import compare, count, total, wanted
from tests.factories import at, condition, make_job, make_pod, make_template, replica


def test_the_master_comes_first_then_the_workers_by_index() -> None:
    job = make_job(workers=2)
    assert list(wanted(job)) == [replica("master-0"), replica("worker-0"), replica("worker-1")]
    assert total(job) == 3


@pytest.mark.parametrize(
    ("case", "seen", "missing", "surplus"),
    [
        pytest.param({}, (), ["master-0", "worker-0"], [], id="a new job misses everything"),
        pytest.param({}, (make_pod("worker-0"),), ["master-0"], [], id="what is there is not missing"),
        pytest.param(
            {"workers": 3},
            (make_pod("master-0"), make_pod("worker-0"), make_pod("worker-2")),
            ["worker-1"],
            [],
            id="a gap is filled at its index",
        ),
        pytest.param(
            {"master": None},
            tuple(make_pod(f"worker-{index}") for index in (1, 0, 10, 9)),
            [],
            ["x-worker-10", "x-worker-9", "x-worker-1"],
            id="scaled down: the highest index goes first, by number",
        ),
        pytest.param(
            {"master": None}, (make_pod("master-0"), make_pod("worker-0")), [], ["x-master-0"], id="a role that went"
        ),
        pytest.param(
            {"master": None},
            (make_pod("worker-0"), make_pod("worker-5", index=None)),
            [],
            [],
            id="an index label that is not believed makes no surplus",
        ),
        pytest.param(
            {"master": None},
            (make_pod("worker-0"), make_pod("worker-5", replica_type=None)),
            [],
            [],
            id="a pod without a role is left alone",
        ),
        pytest.param(
            {"master": None},
            (make_pod("worker-5", replica_type=None), make_pod("worker-0")),
            [],
            [],
            id="and so are not the pods after it",
        ),
        pytest.param(
            {"master": None},
            (make_pod("worker-0", name="x-worker-7"),),
            ["worker-0"],
            [],
            id="a pod whose label and name differ does not take the place",
        ),
    ],
)
def test_compare(case: dict[str, Any], seen: tuple[Pod, ...], missing: list[str], surplus: list[str]) -> None:
    compared = compare(make_job(**case), seen)
    assert compared.missing == tuple(replica(name) for name in missing)
    assert [pod.name for pod in compared.surplus] == surplus


def test_a_role_without_a_number_has_one_replica() -> None:
    roles = {"Worker": {"template": make_template()}}
    job = PyTorchJob.model_validate({"metadata": {"name": "x"}, "spec": {"pytorchReplicaSpecs": roles}})
    assert count(job, replica("worker-0").type) == 1


LIVES = [
    pytest.param(make_pod("worker-0"), (False, 100), [], id="it is not deleted"),
    pytest.param(make_pod("worker-0", deleting=True, created_at=at(50)), (None, 100), [], id="no suspension"),
    pytest.param(make_pod("worker-0", deleting=True, created_at=at(50)), (True, 0), ["x-worker-0"], id="suspended"),
    pytest.param(make_pod("worker-0", deleting=True, created_at=at(99)), (False, 100), ["x-worker-0"], id="before"),
    pytest.param(make_pod("worker-0", deleting=True, created_at=at(100)), (False, 100), [], id="with the resume"),
    pytest.param(make_pod("worker-0", deleting=True), (False, 100), [], id="its creation time is unknown"),
    pytest.param(
        make_pod("worker-0", deleting=True, created_at=at(50)),
        (False, None),
        [],
        id="the time of the resume is unknown",
    ),
]


@pytest.mark.parametrize(("pod", "suspension", "leaving"), LIVES)
def test_pods_from_before_the_last_resume(
    pod: Pod, suspension: tuple[bool | None, float | None], leaving: list[str]
) -> None:
    holds, started = suspension
    conditions = () if holds is None else (condition(ConditionType.SUSPENDED, true=holds),)
    status = JobStatus(conditions=conditions, start_time=None if started is None else at(started))
    compared = compare(make_job(master=None, status=status), (pod,))
    assert [left.name for left in compared.leaving] == leaving
    assert [place.index for place in compared.present] == ([] if leaving else [0])


class CountedPod(Pod):
    """A pod that counts how often its state is read."""

    reads: ClassVar[Counter[str]] = Counter()

    @property
    def succeeded(self) -> bool:
        CountedPod.reads[self.name] += 1
        return self.phase is PodPhase.SUCCEEDED


def test_a_large_elastic_job_reads_each_pod_once_however_many_are_missing() -> None:
    made = (make_pod(f"worker-{index}") for index in range(20))
    seen = tuple(CountedPod(**{name: getattr(pod, name) for name in Pod.__slots__}) for pod in made)
    job = make_job(master=None, workers=40, elasticPolicy={"minReplicas": 1, "maxReplicas": 40})
    CountedPod.reads.clear()
    assert len(compare(job, seen).missing) == 20
    assert set(CountedPod.reads.values()) == {1}
