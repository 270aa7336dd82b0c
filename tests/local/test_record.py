"""What other commands see of a local run, while it runs and after its end: real runs, and the record's limits."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytorchjob.cli import main
from pytorchjob.cluster.errors import ClusterError, JobMissing, NoCluster
from pytorchjob.cluster.options import ConnectOptions
from pytorchjob.local import record, source
from pytorchjob.local.record import Record, Recorded, runs
from pytorchjob_operator.model import PyTorchJob
from tests.local.jobs import Run, job, python, write
from tests.waiting import until

Start = Callable[..., Run]
LINES = """
import time, pathlib
print("first", flush=True)
while not pathlib.Path("go").exists(): time.sleep(0.05)
print("last")
"""
CRASH = """
import pathlib, sys
mark = pathlib.Path("mark")
print("again" if mark.exists() else "crash")
sys.exit(0 if mark.exists() else mark.touch() or 3)
"""


@pytest.fixture(autouse=True)
def _own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def local(*arguments: str) -> str:
    """What a command prints about this machine."""
    result = CliRunner().invoke(main, [*arguments, "--local"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_job_is_seen_while_it_runs_and_afterwards(start: Start, tmp_path: Path) -> None:
    run = start(job("seen", Master=python(LINES), Worker=python(LINES)))
    until(lambda: "first" in local("list", "-o", "name") or (len(_logs()) == 2 and all(map(bool, _logs()))))
    assert local("list", "-o", "name").split("/")[-1].strip() == "seen"
    until(lambda: "2/2 ready" in local("status", "seen"))
    assert "pytorchjob logs seen --local -f" in local("status", "seen")
    assert sorted(local("logs", "seen").splitlines()) == ["[rank0] first", "[rank1] first"]
    follower = Run(tmp_path, "logs", "seen", "--local", "-f")
    follower.until("first")
    (tmp_path / "go").touch()
    assert (run.wait(), follower.wait()) == (0, 0)
    assert sorted(follower.out.splitlines()) == ["[rank0] first", "[rank0] last", "[rank1] first", "[rank1] last"]
    assert "State:     Succeeded" in local("status", "seen")
    assert "SuccessfulCreatePod" in local("events", "seen")
    assert local("logs", "seen", "--rank", "1", "--tail", "1") == "[rank1] last\n"


def _logs() -> list[bytes]:
    return [path.read_bytes() for each in runs() for path in each.path.glob("*.log")]


def test_a_container_that_was_started_again_has_both_logs(start: Start) -> None:
    assert start(job("again", Master=python(CRASH, policy="OnFailure"))).wait() == 0
    assert local("logs", "again") == "[rank0] again\n"
    assert local("logs", "again", "-p") == "[rank0] crash\n"
    assert "1 restart" in local("status", "again")


def test_a_failed_job_has_the_logs_of_all_pods(start: Start) -> None:
    waits = "import time; print('waits', flush=True); time.sleep(600)"
    fails = "import time; print('fails', flush=True); time.sleep(2); raise SystemExit(3)"
    assert start(job("failed", Master=python(fails), Worker=python(waits))).wait() == 1
    assert sorted(local("logs", "failed").splitlines()) == ["[rank0] fails", "[rank1] waits"]
    assert "failed-master-0 ended with code 3" in local("status", "failed")


def test_a_run_that_was_killed_has_failed(start: Start) -> None:
    run = start(job("killed", Master=python(LINES)))
    until(lambda: runs() and "1/1 ready" in local("status", "killed"))
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    until(lambda: "State:     Failed" in local("status", "killed"))
    assert "pytorchjob run" in local("status", "killed")


@pytest.mark.parametrize("error", [JobMissing, NoCluster])
def test_a_cluster_without_the_job_leads_to_this_machine(start: Start, error: type[ClusterError]) -> None:
    def no_cluster(_: ConnectOptions) -> None:
        raise error("it is not there")

    assert start(job("here", Master=python("pass"))).wait() == 0
    for command in (["status", "here"], ["logs", "here"]):
        assert "--local" in CliRunner().invoke(main, command, obj=no_cluster).stderr
    assert "--local" not in CliRunner().invoke(main, ["status", "other"], obj=no_cluster).stderr


def test_a_job_that_is_not_there(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["status", "none", "--local"])
    assert (result.exit_code, result.stderr.count("there is no job named none")) == (4, 1)


def a_job(path: Path, name: str) -> PyTorchJob:
    (found,) = source.read_jobs(str(write(path / "job.yaml", job(name, Master=python("pass")))))
    return found


def test_records_of_runs_that_are_over_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        kept = Record(a_job(tmp_path, f"job-{number}"))
        kept.keep(lambda: {"metadata": {}}, list, 0.0)
        kept.close()
    running = Record(a_job(tmp_path, "runs"))
    running.keep(lambda: {"metadata": {}}, list, 0.0)
    assert [each.is_over() for each in runs()] == [False, True, True, True, True]
    running.close()


def test_a_log_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_MOST_BYTES", 1000)
    made = Record(a_job(tmp_path, "long"))
    made.begin("pod-1", 0)
    for _ in range(100):
        made.write("pod-1", ["x" * 100])
    made.close()
    (log,) = Recorded(next(record.folder().iterdir())).logs("pod")
    assert log.stat().st_size < 1500
    assert log.read_text().endswith("[the record of this log is full]\n")


def test_where_nothing_can_be_written_a_job_runs_without_a_record(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert start(job("unseen", Master=python("print('there')"))).wait() == 0
    assert runs() == []
