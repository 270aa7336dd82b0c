import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytorchjob.local.source import as_local, choose, override, read_jobs
from pytorchjob_operator.coordinator_update import Sync
from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.model import ManagedBy, PyTorchJob
from pytorchjob_operator.observed import CoordinatorAccess, Options
from pytorchjob_operator.plan import make_plan
from tests.factories import observed
from tests.local.jobs import job, role, write

OPTIONS = Options(coordinator=CoordinatorAccess("op:29600"))


def parsed(name: str = "tiny", **more: Any) -> PyTorchJob:
    return PyTorchJob.model_validate(job(name, Worker=role(["x"])) | more)


def test_the_only_job_needs_no_name_and_one_of_several_does() -> None:
    jobs = [parsed("a"), parsed("b")]
    assert choose(jobs[:1], None, "f").metadata.name == "a"
    assert choose(jobs, "b", "f").metadata.name == "b"
    with pytest.raises(InvalidJob, match="f: contains 2 jobs: a, b; choose one with --job NAME"):
        choose(jobs, None, "f")


@pytest.mark.parametrize(
    ("asked", "given", "namespace"),
    [
        pytest.param(None, "", "default", id="nothing given: default"),
        pytest.param(None, "ml", "ml", id="the file's own"),
        pytest.param("other", "ml", "other", id="the command line wins"),
    ],
)
def test_the_namespace(asked: str | None, given: str, namespace: str) -> None:
    found = override(parsed(metadata={"name": "tiny", "namespace": given}), asked, None)
    assert found.metadata.namespace == namespace


def test_another_number_of_workers_is_checked_by_the_same_rules() -> None:
    worker = override(parsed(), None, 3).spec.pytorch_replica_specs.worker
    assert worker is not None
    assert worker.replicas == 3
    with pytest.raises(InvalidJob, match=r"spec.pytorchReplicaSpecs.Worker.replicas"):
        override(parsed(), None, 100_000)


def test_workers_are_not_made_up() -> None:
    lonely = PyTorchJob.model_validate(job(Master=role(["x"])))
    with pytest.raises(InvalidJob, match=r"spec.pytorchReplicaSpecs.Worker: is missing"):
        override(lonely, None, 2)


@pytest.mark.parametrize("spec", [None, {"minReplicas": 1, "maxReplicas": 2}])
@pytest.mark.parametrize("restarts", [0, 3])
def test_restarts_of_the_command_line_are_those_of_the_job(spec: dict[str, Any] | None, restarts: int) -> None:
    given = PyTorchJob.model_validate(job(elastic=spec, Worker=role(["x"], policy="OnFailure")))
    update = make_plan(replace(observed(as_local(override(given, None, None, restarts))), options=OPTIONS)).coordinator
    assert isinstance(update, Sync)
    assert update.policy.max_restarts == restarts


def test_a_suspended_job_or_one_of_another_manager_runs_here_all_the_same() -> None:
    spec = job(Worker=role(["x"]))
    spec["spec"]["runPolicy"] = {"suspend": True, "managedBy": ManagedBy.MULTIKUEUE.value}
    spec["spec"]["managedBy"] = ManagedBy.MULTIKUEUE.value
    found = as_local(PyTorchJob.model_validate(spec)).spec
    assert (found.run_policy.suspend, found.run_policy.managed_by, found.managed_by) == (False, None, None)


def test_a_gang_needs_no_scheduler_here() -> None:
    spec = job(Worker=role(["x"]))
    spec["spec"]["runPolicy"] = {"schedulingPolicy": {"gangScheduler": "volcano"}}
    assert as_local(PyTorchJob.model_validate(spec)).spec.run_policy.scheduling_policy is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_of_any_editor_is_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(json.dumps(job(Worker=role(["ä"])), ensure_ascii=False).encode(encoding))
    (found,) = read_jobs(str(path))
    assert found.spec.pytorch_replica_specs.worker is not None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"\x7fELF\x00\xff\xfe", "is a binary file: name the YAML file of the job", id="a program"),
        pytest.param(b"\xff\xfe\x00", "is a binary file", id="half a character of UTF-16"),
        pytest.param(b"a: 1\nb: \xdf", r":2:4: not valid YAML: the byte 0xDF is not UTF-8", id="an old encoding"),
    ],
)
def test_what_is_no_text_is_said(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(data)
    with pytest.raises(InvalidJob, match=words):
        read_jobs(str(path))


def test_an_empty_name_is_no_folder() -> None:
    with pytest.raises(InvalidJob, match="the name of the file is empty"):
        read_jobs("")


def test_a_huge_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = write(tmp_path / "job.yaml", job(Worker=role(["x" * 5_000_000])))
    with pytest.raises(InvalidJob, match="is larger than"):
        read_jobs(str(path))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        pytest.param("trian.yml", r"trian\.yml: there is no such file; did you mean .*train\.yaml\?", id="a slip"),
        pytest.param("other.txt", r"other\.txt: there is no such file$", id="nothing like it"),
        pytest.param("no/train.yaml", r"there is no such file, and no folder .*no$", id="no folder"),
        pytest.param(".", r"is a folder: name the file of the job", id="a folder"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, path: str, words: str) -> None:
    write(tmp_path / "train.yaml", job(Worker=role(["x"])))
    with pytest.raises(InvalidJob, match=words):
        read_jobs(str(tmp_path / path))


def test_a_job_of_another_name_is_suggested() -> None:
    with pytest.raises(InvalidJob, match="contains no job named tinny; it contains: tiny, big; did you mean tiny"):
        choose([parsed("tiny"), parsed("big")], "tinny", "f")
