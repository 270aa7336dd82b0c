"""The stand-in for kube-state-metrics: which series it makes of a job."""

from typing import Any

import pytest

from monitoring.job_series import custom_resource_state
from tests.monitoring.custom_resource_state import Sample, exposition, samples

TIME = "2026-11-22T10:00:00Z"
META = {"name": "x", "namespace": "a", "creationTimestamp": TIME}
CREATED = {"type": "Created", "status": "True", "reason": "PyTorchJobCreated"}
RUNNING = {"type": "Running", "status": "False", "reason": "PyTorchJobSuspended"}
SPENT = {"time": TIME, "current": "running", "seconds": {"running": 7.5, "hung": 2.0}, "percent": 78.9}
RESTART = {"time": TIME, "reason": "WorkersHang"}
CASES = [
    pytest.param({}, "created_timestamp_seconds", {"": 1795341600.0}, id="a time"),
    pytest.param({}, "suspended", {"": 0.0}, id="an unset switch is 0"),
    pytest.param({"spec": {"runPolicy": {"suspend": True}}}, "suspended", {"": 1.0}, id="a set switch is 1"),
    pytest.param({}, "progress_step", {}, id="an unset number has no series"),
    pytest.param({"status": {"progress": {"step": 7}}}, "progress_step", {"": 7.0}, id="a number"),
    pytest.param(
        {"status": {"conditions": [CREATED, RUNNING]}},
        "condition",
        {"PyTorchJobCreated Created": 1.0, "PyTorchJobSuspended Running": 0.0},
        id="each condition",
    ),
    pytest.param(
        {"status": {"replicaStatuses": {"Master": {}, "Worker": {"active": 2}}}},
        "replicas_ready",
        {"Master": 0.0, "Worker": 2.0},
        id="each role",
    ),
    pytest.param(
        {"status": {"elastic": {"lastRestart": RESTART}}},
        "last_restart_timestamp_seconds",
        {"WorkersHang": 1795341600.0},
        id="a label from elsewhere in the job",
    ),
    pytest.param({"status": {"progress": {"metrics": {"loss": 0.5}}}}, "progress_metric", {"loss": 0.5}, id="each key"),
    pytest.param({"status": {"goodput": SPENT}}, "time_spent_seconds", {"running": 7.5, "hung": 2.0}, id="classes"),
    pytest.param(
        {"status": {"goodput": SPENT}},
        "time_spent_timestamp_seconds",
        {"running": 1795341600.0},
        id="a time with the open class",
    ),
    pytest.param({"status": {"goodput": SPENT}}, "goodput_percent", {"": 78.9}, id="the running part"),
]


COMMON = {"namespace", "pytorchjob", "customresource_group", "customresource_version", "customresource_kind"}


def own_labels(sample: Sample) -> str:
    """The values of the labels that not every series has."""
    return " ".join(text for label, text in sorted(sample.labels.items()) if label not in COMMON)


@pytest.mark.parametrize(("job", "name", "expected"), CASES)
def test_a_job_has_the_series(job: dict[str, Any], name: str, expected: dict[str, float]) -> None:
    made = samples(custom_resource_state(), [{"metadata": META, **job}])
    found = [sample for sample in made if sample.name[11:] == name]
    assert {(sample.labels["namespace"], sample.labels["pytorchjob"]) for sample in found} <= {("a", "x")}
    assert {own_labels(sample): sample.value for sample in found} == expected


def test_the_state_is_the_type_of_the_latest_condition() -> None:
    found = samples(custom_resource_state(), [{"metadata": META, "status": {"conditions": [CREATED, RUNNING]}}])
    states = {sample.labels["state"]: sample.value for sample in found if sample.name == "pytorchjob_state"}
    assert {state for state, value in states.items() if value} == {"Running"}
    assert len(states) == 8


def test_the_text_has_a_line_for_each_sample() -> None:
    assert exposition(samples(custom_resource_state(), [{"metadata": META}])).count("\n") == 6
