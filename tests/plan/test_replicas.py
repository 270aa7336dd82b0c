"""Which replicas should exist, and how the pods that are there compare with them."""

from collections import Counter
from typing import Any, ClassVar

import pytest

from pytorchjob_operator.observed import Pod, PodPhase
from pytorchjob_operator.plan.replicas import compare, total, wanted
from tests.factories import make_job, make_pod, replica


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
            (make_pod("worker-0", name="x-worker-7"),),
            ["worker-0"],
            [],
            id="a pod whose label and name differ does not take the place",
        ),
    ],
)
def test_compare(case: dict[str, Any], seen: tuple[Pod, ...], missing: list[str], surplus: list[str]) -> None:
    compared = compare(make_job(**case), seen)
    assert compared.missing == tuple(replica(who) for who in missing)
    assert [pod.name for pod in compared.surplus] == surplus


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
