import os
import subprocess
import sys

import pytest

from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.model import ConditionType
from pytorchjob_operator.model.parse import field_path, parse_job
from tests.model import corpus

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_fields_of_a_newer_version_are_ignored() -> None:
    job = corpus.changed(corpus.job(), {"spec.tomorrow": 1, "metadata.managedFields": [], "status": {"progress": {}}})
    assert parse_job(job).metadata.name == "digits"


def test_an_object_stored_before_our_schema_names_its_field() -> None:
    job = corpus.changed(corpus.job(), {"spec.runPolicy.cleanPodPolicy": "Some"})
    with pytest.raises(InvalidJob, match=r"spec\.runPolicy\.cleanPodPolicy: Input should be"):
        parse_job(job)


@pytest.mark.parametrize("roles", [{}, {"Launcher": corpus.role()}, {"Master": None}], ids=repr)
def test_a_stored_job_without_a_role_that_we_know_cannot_be_read(roles: corpus.Job) -> None:
    job = corpus.changed(corpus.job(), {"spec.pytorchReplicaSpecs": roles})
    with pytest.raises(InvalidJob, match=r"spec\.pytorchReplicaSpecs: .*must have a Master, a Worker, or both"):
        parse_job(job)


@pytest.mark.parametrize("job", corpus.GOOD.values(), ids=corpus.GOOD.keys())
def test_what_was_read_is_written_back(job: corpus.Job) -> None:
    written = parse_job(job).to_api()
    assert parse_job(written) == parse_job(job)
    assert written["spec"]["pytorchReplicaSpecs"] == job["spec"]["pytorchReplicaSpecs"]


def test_times_are_written_as_the_api_server_writes_them() -> None:
    status = {
        "startTime": "2026-01-02T03:04:05.678+01:00",
        "conditions": [{"type": "Running", "status": "True", "lastUpdateTime": "2026-01-02T03:04:05Z"}],
    }
    read = parse_job({**corpus.job(), "status": status}).status
    written = read.to_api()
    assert written["startTime"] == "2026-01-02T02:04:05Z"
    assert written["conditions"][0]["lastUpdateTime"] == "2026-01-02T03:04:05Z"
    assert read.holds(ConditionType.RUNNING)
    assert not read.holds(ConditionType.FAILED)


def test_a_path_is_written_as_the_api_server_writes_it() -> None:
    assert field_path(["spec", "containers", 0, "image"]) == "spec.containers[0].image"


def test_the_operator_does_not_load_what_only_files_need() -> None:
    code = "import sys, pytorchjob_operator.model.parse; print({'yaml', 'jsonschema'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert done.stdout == "set()\n"
