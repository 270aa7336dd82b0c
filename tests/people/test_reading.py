"""What a job's object shows, for every command alike."""

from datetime import UTC, datetime

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


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        pytest.param({"holderIdentity": "a", "renewTime": "2026-01-01T00:08:01Z"}, True, id="renewed 119 s ago"),
        pytest.param({"holderIdentity": "a", "renewTime": "2026-01-01T00:07:59Z"}, False, id="renewed 121 s ago"),
        pytest.param({"holderIdentity": "", "renewTime": "2026-01-01T00:10:00Z"}, False, id="released"),
        pytest.param({"holderIdentity": "a"}, False, id="never renewed"),
        pytest.param({}, False, id="empty"),
    ],
)
def test_a_leader_holds_a_lease_that_it_renews(spec: dict[str, str], held: bool) -> None:
    assert reading.is_held({"spec": spec}, datetime(2026, 1, 1, 0, 10, tzinfo=UTC)) is held


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        ("1", 1),
        ("500m", 0.5),
        ("1500000000n", 1.5),
        ("1k", 1000),
        ("16Ki", 16384),
        ("4Gi", 4 << 30),
        ("1e3", 1000),
        (2, 2),
        ("1K", 0),
        ("many", 0),
        (None, 0),
    ],
)
def test_quantities(quantity: object, number: float) -> None:
    assert reading.amount(quantity) == pytest.approx(number)
