"""`list`: one line for each job."""

import json
from datetime import timedelta

import pytest
import yaml

from pytorchjob.screen import plain
from pytorchjob.view.listing import job_line
from pytorchjob.view.reading import ended
from tests.people.calling import call
from tests.people.fake_cluster import NOW, FakeCluster, a_job, timestamp

PROGRESS = {
    "step": 120,
    "total": 1000,
    "percent": 12,
    "remainingSeconds": 4000,
}


def test_a_job_that_trains() -> None:
    job = a_job(workers=3)
    job["status"] |= {
        "replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 2, "failed": 1}},
        "restarts": 1,
        "elastic": {"restarts": 2},
        "progress": PROGRESS,
    }
    line = job_line(job)
    assert (line.state, line.ready, line.restarts, line.step, line.percent) == ("Running", "3/4", 3, "120/1000", 12)


@pytest.mark.parametrize(
    ("state", "meta", "shown", "end"),
    [
        pytest.param("", {}, "New", "", id="no operator has seen it"),
        pytest.param("Suspended", {}, "Suspended", "", id="suspended"),
        pytest.param("Failed", {}, "Failed", "Failed", id="failed"),
        pytest.param("Running", {"deletionTimestamp": timestamp()}, "Deleting", "", id="being deleted"),
    ],
)
def test_states(state: str, meta: dict[str, str], shown: str, end: str) -> None:
    job = a_job(state=state)
    job["metadata"] |= meta
    assert (job_line(job).state, ended(job)) == (shown, end)


def test_the_table() -> None:
    result = call(FakeCluster(a_job("digits", workers=3), a_job("b", state="")), "list")
    header, first, second = (line.split() for line in result.stdout.splitlines())
    assert header == ["NAME", "STATE", "READY", "RESTARTS", "STEP", "PROGRESS", "ETA", "AGE"]
    assert (first[:4], second[:4]) == (["b", "New", "0/3", "0"], ["digits", "Running", "0/4", "0"])


def test_all_namespaces_and_labels() -> None:
    here, there = a_job("here"), a_job("there")
    there["metadata"] |= {"namespace": "other", "labels": {"team": "x"}}
    cluster = FakeCluster(here, there)
    assert call(cluster, "list", "-o", "name").stdout == "pytorchjob.kubeflow.org/here\n"
    wide = call(cluster, "list", "-A", "-l", "team=x", "-o", "wide").stdout.splitlines()
    assert [line.split()[:2] for line in wide] == [["NAMESPACE", "NAME"], ["other", "there"]]
    assert wide[0].endswith("REASON")


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_objects_are_printed_as_kubectl_does(form: str) -> None:
    text = call(FakeCluster(a_job("digits")), "list", "-o", form).stdout
    body = json.loads(text) if form == "json" else yaml.safe_load(text)
    assert (body["kind"], [item["metadata"]["name"] for item in body["items"]]) == ("List", ["digits"])


def test_no_jobs_is_no_failure() -> None:
    result = call(FakeCluster(), "list", "-n", "empty")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No jobs found in the namespace empty.\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (119, "119s"),
        (185, "3m5s"),
        (540, "9m"),
        (1500, "25m"),
        (11400, "3h10m"),
        (100800, "28h"),
        (187200, "2d4h"),
        (800000, "9d"),
    ],
)
def test_ages_are_kubectls(seconds: int, text: str) -> None:
    assert plain.age(seconds) == text


def test_the_age_of_a_moment() -> None:
    assert plain.since(timestamp(), NOW + timedelta(seconds=42)) == "42s"
    assert plain.since(None, NOW) == "<unknown>"
