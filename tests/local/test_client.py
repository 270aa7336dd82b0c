"""The Python client with this machine behind it: real runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytorchjob import JobFailedError, PyTorchJobClient
from pytorchjob.client.backend import UnsupportedError
from pytorchjob.cluster.errors import JobMissing
from pytorchjob_operator.errors import CannotRun
from tests.local.jobs import job, python
from tests.waiting import until


@pytest.fixture
def client(tmp_path: Path) -> Iterator[PyTorchJobClient]:
    found = PyTorchJobClient.local(tmp_path)
    yield found
    for left in found.list_jobs():
        found.delete_job(left.name)


def test_a_job_runs_to_its_end(client: PyTorchJobClient) -> None:
    made = client.create_job(job(Master=python("print('hello')"), Worker=python("print('there')")))
    assert client.wait_for_job_status(made.name, timeout=90, polling_interval=0.1).end == "Succeeded"
    lines = list(client.get_job_logs(made.name, follow=True))
    assert any("hello" in line for line in lines)
    assert any("there" in line for line in lines)
    assert client.get_job_events(made.name)[0]["type"] == "Normal"


def test_a_failure_is_raised_with_its_reason(client: PyTorchJobClient) -> None:
    made = client.create_job(job(Master=python("raise SystemExit(3)")))
    with pytest.raises(JobFailedError, match="has failed"):
        client.wait_for_job_status(made.name, timeout=90, polling_interval=0.1)


def test_a_running_job_is_deleted_with_its_processes(client: PyTorchJobClient, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    made = client.create_job(job(Master=python(code)))
    pid = until(lambda: mark.exists() and mark.read_text())
    client.delete_job(made.name)
    assert not Path(f"/proc/{pid}").exists()
    assert client.list_jobs() == []


@pytest.mark.parametrize(
    ("verb", "error", "words"),
    [
        ("get_job", JobMissing, "there is no job named missing"),
        ("delete_job", JobMissing, "there is no job named missing"),
        ("suspend_job", JobMissing, "there is no job named missing"),
    ],
)
def test_what_is_not_there_is_named(client: PyTorchJobClient, verb: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        getattr(client, verb)("missing")


def test_what_this_machine_cannot_do_is_named(client: PyTorchJobClient) -> None:
    made = client.create_job(job(Master=python("import time; time.sleep(600)")))
    with pytest.raises(UnsupportedError, match="use a cluster"):
        client.suspend_job(made.name)
    with pytest.raises(CannotRun, match="exists already"):
        client.create_job(job(Master=python("pass")))
