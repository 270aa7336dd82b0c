"""A job in a queue of Kueue: its place, what it waits for, and the workers that a job which trains has no quota for."""

import json
from typing import Any

import pytest

from pytorchjob_operator import names
from tests.people import seeds
from tests.people.calling import call
from tests.people.fake_cluster import NAMESPACE, FakeCluster, Object, timestamp

QUEUE = {names.LABEL_KUEUE_QUEUE: "team-a"}
NO_QUOTA = "insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed"
QUEUED = seeds.condition("Suspended", reason="PyTorchJobQueued", seconds=-720)
WAITING = seeds.condition("Waiting", NO_QUOTA, reason="WaitsForQuota")


def cluster(
    job: Object, *parts: Any, workloads: tuple[Object, ...] = (), pending: tuple[str, ...] | None = None
) -> FakeCluster:
    """A cluster with Kueue; `pending`: the uids of the jobs whose Workloads wait, in their order."""
    made = seeds.cluster_with(job, seeds.kueue(*workloads), *parts)
    if pending is not None:
        path = f"/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/localqueues/team-a/pendingworkloads"
        found = [
            {
                "metadata": {"ownerReferences": [{"uid": uid}]},
                "positionInLocalQueue": at,
                "positionInClusterQueue": at + 2,
            }
            for at, uid in enumerate(pending)
        ]
        made.serve(path, {"items": found})
    return made


def shown(made: FakeCluster) -> tuple[Any, str]:
    """The queue in the JSON and in the text of `status`."""
    text = call(made, "status", "train").stdout
    line = next((line for line in text.splitlines() if line.startswith("Queue:")), "")
    return json.loads(call(made, "status", "train", "-o", "json").stdout)["queue"], line


@pytest.mark.parametrize(
    ("pending", "place", "words"),
    [
        (("a", "uid-train", "b"), {"position": 2, "waiting": 3, "overall": 4}, "place 2 of 3 (4 in its ClusterQueue)"),
        (("a",), None, "team-a"),
        (None, None, "team-a"),
    ],
)
def test_a_job_without_pods(pending: tuple[str, ...] | None, place: object, words: str) -> None:
    job = seeds.job(QUEUED, WAITING, labels=QUEUE)
    workload = seeds.workload_with(seeds.condition("QuotaReserved", NO_QUOTA, reason="Pending", status="False"))
    queue, line = shown(cluster(job, workloads=(workload,), pending=pending))
    assert (queue["name"], queue["reason"], queue["message"], queue["pods"]) == (
        "team-a",
        "WaitsForQuota",
        NO_QUOTA,
        [],
    )
    assert queue["place"] == place
    assert queue["since"] == timestamp(-720)
    assert line.endswith(words)


def test_a_job_of_kueues_own_integration_has_its_reason_from_its_workload() -> None:
    job = seeds.job(seeds.condition("Suspended"), runPolicy={"suspend": True}, labels=QUEUE)
    queue, _ = shown(cluster(job, workloads=(seeds.workload(NO_QUOTA, "ExceedsMaxQuota"),)))
    assert (queue["reason"], queue["message"]) == ("ExceedsQuota", NO_QUOTA)


def test_further_workers_of_a_job_that_trains() -> None:
    job = seeds.job(seeds.condition("Running"), labels=QUEUE)
    admitted = (seeds.condition("QuotaReserved"), seeds.condition("Admitted"))
    workloads = (
        seeds.workload_with(*admitted),
        seeds.workload_with(*admitted, name="pytorchjob-train.worker-0"),
        seeds.workload_with(
            seeds.condition("QuotaReserved", NO_QUOTA, reason="Pending", status="False"),
            name="pytorchjob-train.worker-1",
        ),
    )
    queue, line = shown(cluster(job, seeds.pod("train-master-0"), seeds.pod("train-worker-0"), workloads=workloads))
    assert (queue["pods"], queue["reason"]) == (["worker-1"], "WaitsForQuota")
    assert "1 more worker waits" in line
    assert NO_QUOTA in line


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(seeds.job(seeds.condition("Running")), id="without a queue"),
        pytest.param(seeds.job(seeds.condition("Succeeded"), labels=QUEUE), id="that has ended"),
        pytest.param(seeds.job(seeds.condition("Running"), labels=QUEUE), id="whose workers are all admitted"),
    ],
)
def test_a_job_that_does_not_wait(job: Object) -> None:
    assert shown(cluster(job)) == (None, "")


def test_the_list_has_a_column_if_a_job_waits() -> None:
    runs, waits = seeds.job(seeds.condition("Running")), seeds.job(QUEUED, WAITING, labels=QUEUE)
    runs["metadata"] |= {"name": "runs", "uid": "uid-runs"}
    header, first, second = call(cluster(waits, runs, pending=("uid-train",)), "list").stdout.splitlines()
    assert header.split()[-1] == "QUEUE"
    assert first.split()[-1] == "-"
    place, since, reason = second.split(", ")[1:]
    assert (place, reason) == ("place 1 of 1 (3 in its ClusterQueue)", "WaitsForQuota")
    assert since.startswith("for ")
    assert "QUEUE" not in call(cluster(runs), "list").stdout
