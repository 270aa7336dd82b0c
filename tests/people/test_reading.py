"""What a job's object shows, for every command alike."""

import pytest

from pytorchjob.view import reading


@pytest.mark.parametrize(
    ("conditions", "end"),
    [
        ([], ""),
        ([("Running", "True")], ""),
        ([("Running", "False"), ("Succeeded", "True")], "Succeeded"),
        ([("Failed", "True")], "Failed"),
        ([("Failed", "False"), ("Running", "True")], ""),
    ],
)
def test_a_job_has_ended_with_its_last_condition(conditions: list[tuple[str, str]], end: str) -> None:
    shown = [{"type": name, "status": status} for name, status in conditions]
    assert reading.ended({"status": {"conditions": shown}}) == end


@pytest.mark.parametrize(
    ("roles", "pods"),
    [
        pytest.param({"Master": {"replicas": 1}, "Worker": {"replicas": 3}}, 4, id="all roles"),
        pytest.param({"Master": {}, "Worker": None}, 2, id="a role without a number has one pod"),
        pytest.param({"Chief": {"replicas": 2}}, 0, id="no role of ours"),
        pytest.param({}, 0, id="no role"),
    ],
)
def test_the_wanted_pods(roles: dict[str, dict[str, int] | None], pods: int) -> None:
    assert reading.wanted_pods({"spec": {"pytorchReplicaSpecs": roles}}) == pods


@pytest.mark.parametrize(
    ("job", "suspended", "queue"),
    [
        ({"spec": {}}, False, ""),
        ({"spec": {"runPolicy": None}, "metadata": {"labels": None}}, False, ""),
        ({"spec": {"runPolicy": {"suspend": False}}, "metadata": {"labels": {"team": "a"}}}, False, ""),
        (
            {
                "spec": {"runPolicy": {"suspend": True}},
                "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}},
            },
            True,
            "gpus",
        ),
    ],
)
def test_what_holds_a_job_back(job: reading.Object, suspended: bool, queue: str) -> None:
    assert (reading.suspended(job), reading.queue_of(job)) == (suspended, queue)
