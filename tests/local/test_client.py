"""The Python client with this machine behind it: real runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytorchjob import JobFailedError, PyTorchJobClient, TrainFunction
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


def fit(folder: str) -> None:
    import os
    from pathlib import Path

    import torch.distributed as dist

    dist.init_process_group("gloo")
    print("rank", dist.get_rank(), "of", dist.get_world_size(), flush=True)
    mark = Path(folder, "crashed")
    if dist.get_rank() == 1 and not mark.exists():
        mark.touch()
        os._exit(3)
    dist.barrier()


@pytest.mark.torch
@pytest.mark.parametrize("fields", [{}, {"min_pods": 1, "packages": ["pip"]}], ids=["fixed", "elastic"])
def test_a_function_trains_on_after_a_crash(client: PyTorchJobClient, tmp_path: Path, fields: dict[str, Any]) -> None:
    client.train("fit", TrainFunction(fit, "x", {"folder": str(tmp_path)}, pods=2, processes=1, **fields))
    assert client.wait_for_job_status("fit", timeout=180, polling_interval=0.1).restarts == 1
    assert [sum("rank 0 of 2" in line for line in client.get_job_logs("fit", ranks="0"))] == [2]


@pytest.mark.torch
def test_a_function_runs_without_the_agent(client: PyTorchJobClient, tmp_path: Path) -> None:
    (tmp_path / "crashed").touch()
    function = TrainFunction(fit, "x", {"folder": str(tmp_path)}, pods=2, processes=1, launcher="torchrun")
    client.train("fit", function)
    client.wait_for_job_status("fit", timeout=180, polling_interval=0.1)
    assert not any("pytorchjob-agent" in line for line in client.get_job_logs("fit"))
