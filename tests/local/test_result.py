import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from pytorchjob.local.result import FORMATS, final_object, next_steps, summary
from pytorchjob.local.source import as_stored
from pytorchjob_operator.model import PyTorchJob
from tests.local.jobs import job, role

GIVEN = PyTorchJob.model_validate(job(Worker=role(["x"])))


def ended(kind: str, *, completed: bool = True) -> PyTorchJob:
    time = datetime(2026, 1, 1, tzinfo=UTC) if completed else None
    status: dict[str, Any] = {"conditions": [{"type": kind, "status": "True"}], "completionTime": time}
    return as_stored(PyTorchJob.model_validate({**job(Worker=role(["x"])), "status": status}))


def test_the_final_object_has_the_spec_as_given_and_nothing_that_only_a_server_gives() -> None:
    found = final_object(GIVEN, ended("Succeeded"))
    assert found["spec"] == job(Worker=role(["x"]))["spec"]
    assert found["metadata"] == {"name": "tiny", "generation": 1}
    assert found["status"]["completionTime"] == "2026-01-01T00:00:00Z"


def test_both_formats_say_the_same() -> None:
    found = final_object(GIVEN, ended("Failed"))
    assert json.loads(FORMATS["json"](found)) == yaml.safe_load(FORMATS["yaml"](found)) == found


@pytest.mark.parametrize(
    ("left", "restarts", "line"),
    [
        pytest.param(ended("Succeeded"), 0, "tiny: Succeeded after 3 s", id="a job that has ended"),
        pytest.param(ended("Failed"), 1, "tiny: Failed after 3 s, 1 restart", id="its restarts, if there were any"),
        pytest.param(ended("Running", completed=False), 0, "tiny: stopped while Running after 3 s", id="a stopped one"),
    ],
)
def test_the_summary(left: PyTorchJob, restarts: int, line: str) -> None:
    assert summary(left, "3 s", restarts) == line


@pytest.mark.parametrize(
    ("path", "left", "commands"),
    [
        pytest.param("a.yaml", ended("Succeeded"), ["kubectl", "pytorchjob", "pytorchjob"], id="a cluster comes next"),
        pytest.param("a.yaml", ended("Failed"), [], id="nothing beside the report of a failure"),
        pytest.param("a.yaml", ended("Running", completed=False), [], id="nothing after Ctrl-C"),
        pytest.param("-", ended("Succeeded"), [], id="nothing for standard input"),
    ],
)
def test_what_to_try_next(path: str, left: PyTorchJob, commands: list[str]) -> None:
    assert [line.split()[0] for line in next_steps(path, left)[1:]] == commands
