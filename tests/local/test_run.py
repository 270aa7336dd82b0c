"""`pytorchjob run` with real processes."""

import json
import os
import re
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob_agent.contract.environment import TERMINATION_LOG
from pytorchjob_operator.model import PyTorchJob, with_defaults
from pytorchjob_operator.observed import Options
from pytorchjob_operator.plan import replicas
from pytorchjob_operator.plan.pods import build_pod
from tests.local.jobs import ROOT, Run, alive, job, parent, python, role, write
from tests.ports import free_port
from tests.waiting import again, until

Start = Callable[..., Run]

HELLO = "print('hello')"
SLEEP = "import os, time; print(f'pid={os.getpid()}'); time.sleep(1000)"
NESTED = (
    "import os, subprocess, sys, time; print(f'pid={os.getpid()}');"
    "subprocess.Popen([sys.executable, '-uc', \"import os, time, signal; signal.signal(15, signal.SIG_IGN);"
    " print(f'pid={os.getpid()}'); time.sleep(1000)\"], start_new_session=True); time.sleep(1000)"
)
SECOND_TIME = (
    "import os, sys; first = not os.path.exists('seen'); open('seen', 'w'); print('first' if first else 'again');"
    "sys.exit(3 if first else 0)"
)
ENV = "import json, os; json.dump(dict(os.environ), open('env-' + os.environ['HOSTNAME'], 'w'))"


@pytest.mark.parametrize(
    ("spec", "status", "conditions"),
    [
        pytest.param(
            job(Master=python(HELLO), Worker=python(HELLO, replicas=2)),
            0,
            [("Created", "True"), ("Running", "False"), ("Succeeded", "True")],
            id="a job whose replicas end with 0 succeeds",
        ),
        pytest.param(
            job(Master=python(SLEEP), Worker=python("raise SystemExit(3)")),
            1,
            [("Created", "True"), ("Running", "False"), ("Failed", "True")],
            id="a replica that fails under Never fails the job, and the others are stopped",
        ),
        pytest.param(
            job(Worker=python(SECOND_TIME, policy="OnFailure")),
            0,
            [("Created", "True"), ("Running", "False"), ("Succeeded", "True")],
            id="OnFailure starts the container again in place",
        ),
        pytest.param(
            job(Worker=python(SECOND_TIME.replace("sys.exit(3 ", "sys.exit(200 "), policy="ExitCode")),
            0,
            [("Created", "True"), ("Running", "False"), ("Succeeded", "True")],
            id="ExitCode makes the pod again after a retryable code",
        ),
        pytest.param(
            job(Worker=role(["no-such-program"])),
            1,
            [("Created", "True"), ("Failed", "True")],
            id="a command that is not there fails the job under Never",
        ),
    ],
)
def test_a_job_ends_as_in_the_cluster(
    start: Start, spec: dict[str, Any], status: int, conditions: list[tuple[str, str]]
) -> None:
    run = start(spec, "--output", "json")
    assert run.wait() == status, run.err
    assert run.conditions() == conditions
    assert json.loads(run.out)["spec"] == spec["spec"]


@pytest.mark.parametrize(
    ("policy", "code", "used"),
    [
        pytest.param("OnFailure", 3, None, id="restarts in place"),
        pytest.param("ExitCode", 200, 1, id="pods that are made again"),
    ],
)
def test_the_restarts_of_a_job_are_limited(start: Start, policy: str, code: int, used: int | None) -> None:
    worker = python(f"raise SystemExit({code})", policy=policy)
    run = start(job(Worker=worker, run_policy={"backoffLimit": 2}), "--output", "json")
    assert run.wait() == 1, run.err
    status = json.loads(run.out)["status"]
    assert "it has reached the specified backoff limit" in status["conditions"][-1]["message"]
    assert (status.get("restarts"), status["conditions"][-1]["type"]) == (used, "Failed")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param(["python", "no-train.py"], "can't open file", id="a missing script"),
        pytest.param(
            ["python", "-c", "import no_such_torch"], "No module named 'no_such_torch'", id="a missing module"
        ),
        pytest.param(["no-such-program"], "cannot start 'no-such-program'", id="a missing program"),
    ],
)
def test_the_same_early_exit_three_times_ends_the_job_with_its_reason(
    start: Start, command: list[str], words: str
) -> None:
    run = start(job(Worker=role(command, policy="OnFailure")), "--output", "json")
    assert run.wait() == 1, run.err
    message = json.loads(run.out)["status"]["conditions"][-1]["message"]
    assert "tiny-worker-0 ended 3 times in a row soon after its start" in message
    assert words in message


def test_an_exit_that_is_retried_in_new_pods_ends_the_job_too(start: Start) -> None:
    run = start(job(Worker=python("print('no data'); raise SystemExit(200)", policy="ExitCode")), "--output", "json")
    assert run.wait() == 1, run.err
    status = json.loads(run.out)["status"]
    assert "ended 3 times in a row soon after its start: exit code 200, no data" in status["conditions"][-1]["message"]
    assert "2 restarts" in run.err


def test_a_failed_job_shows_true_numbers(start: Start) -> None:
    run = start(job(Master=python(SLEEP), Worker=python("raise SystemExit(3)")), "--output", "json")
    assert run.wait() == 1, run.err
    shown = json.loads(run.out)["status"]["replicaStatuses"]
    assert (shown["Master"]["active"], shown["Worker"]["active"], shown["Worker"]["failed"]) == (0, 0, 1)
    assert re.search(r"^tiny: Failed after \d+ s$", run.err, re.MULTILINE), run.err


@pytest.mark.parametrize(("code", "end"), [("", "Succeeded"), ("raise SystemExit(3)", "Failed")])
def test_the_end_is_one_line(start: Start, code: str, end: str) -> None:
    run = start(job(Worker=python(code)))
    run.wait()
    assert len([line for line in run.err.splitlines() if line.startswith(f"tiny: {end}")]) == 1, run.err


def test_an_agent_that_cannot_be_installed_is_one_sentence(start: Start, tmp_path: Path) -> None:
    spec = job(Worker=python(HELLO))
    spec["spec"]["agent"] = {"inject": True}
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'install' in sys.argv: sys.exit('no space left on device')\n"
    )
    run = start(spec, env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'operator'}"})
    assert run.wait() == 1
    assert "Traceback" not in run.err
    assert "error: the agent cannot be installed in" in run.err
    assert "no space left on device" in run.err


def test_a_coordinator_without_a_port_is_one_sentence(start: Start, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import socket\ndef refuse(*_, **__): raise OSError(98, 'Address already in use')\n"
        "socket.create_server = refuse\n"
    )
    run = start(job(Worker=python(HELLO)), env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'operator'}"})
    assert run.wait() == 1
    assert "Traceback" not in run.err
    assert "error: the coordinator cannot open a port on 127.0.0.1: Address already in use" in run.err


def test_the_deadline_of_a_job_ends_it_and_leaves_no_process(start: Start) -> None:
    def ended(number: int) -> None:
        policy = {"activeDeadlineSeconds": 4 ** (number + 1)}
        run = start(job(Master=python(NESTED), Worker=python(NESTED), run_policy=policy))
        assert run.wait() == 1
        assert "Job tiny has failed because it was active longer than specified deadline" in run.err
        assert "the job has failed: stopping the replicas that still run" in run.err
        assert len(run.pids()) == 4, "all of them ran when the time was over"
        assert not any(map(alive, run.pids()))

    again(ended)


def test_a_suspended_job_runs_here_and_says_so(start: Start) -> None:
    run = start(job(Worker=python(HELLO), run_policy={"suspend": True}))
    assert run.wait() == 0
    assert "note: runPolicy.suspend is ignored: the job runs" in run.err


def test_a_gang_waits_for_nobody_here(start: Start) -> None:
    policy = {"schedulingPolicy": {"gangScheduler": "volcano", "minAvailable": 2}}
    run = start(job(Worker=python(HELLO, replicas=2), run_policy=policy))
    assert run.wait() == 0
    assert "note: runPolicy.schedulingPolicy is ignored" in run.err


@pytest.mark.parametrize(
    "elastic",
    [
        pytest.param(None, id="a Master and workers"),
        pytest.param({"maxReplicas": 3, "maxRestarts": 5, "rdzvConf": [{"key": "a", "value": "b"}]}, id="elastic"),
    ],
)
def test_the_env_of_every_replica_is_the_clusters_names_of_hosts_aside(
    start: Start, tmp_path: Path, elastic: dict[str, Any] | None
) -> None:
    more = {"ports": [{"name": "pytorchjob-port", "containerPort": free_port()}], "env": [{"name": "A", "value": "1"}]}
    spec = job(elastic=elastic, Master=python(ENV, **more), Worker=python(ENV, replicas=2, **more))
    assert start(spec).wait() == 0
    stored = with_defaults(PyTorchJob.model_validate(spec))
    for replica in replicas.wanted(stored):
        pod = build_pod(stored, replica, Options())
        here = json.loads((tmp_path / f"env-{pod['metadata']['name']}").read_text())
        there = {variable["name"]: variable["value"] for variable in pod["spec"]["containers"][0]["env"]}
        address = here["MASTER_ADDR"].rpartition(".")[0]
        hosts = {"tiny-master-0.tiny": f"{address}.1", "tiny-worker-0.tiny": f"{address}.2"}
        assert {name: here[name] for name in there} == {name: replaced(text, hosts) for name, text in there.items()}


def replaced(text: str, hosts: dict[str, str]) -> str:
    for name, address in hosts.items():
        text = text.replace(name, address)
    return text


def test_a_replica_killed_by_hand_is_started_again(start: Start) -> None:
    run = start(job(Worker=python(SLEEP, policy="OnFailure")))
    run.until("pid=")
    (first,) = run.pids()
    os.kill(first, signal.SIGKILL)
    run.until("pid=", times=2)
    assert "exited with 137 (SIGKILL): restartPolicy OnFailure, restarts in 1 s" in run.err


def test_a_command_dies_with_its_supervisor_and_is_started_again(start: Start) -> None:
    run = start(job(Worker=python(SLEEP, policy="OnFailure")))
    run.until("pid=")
    (first,) = run.pids()
    os.kill(parent(first), signal.SIGKILL)
    run.until("pid=", times=2)
    assert not alive(first)


def test_the_last_words_of_a_replica_are_shown(start: Start) -> None:
    words = {"reason": "WorkerFailed", "exit_code": 1, "message": "no data", "version": 1}
    code = f"import os; open(os.environ['{TERMINATION_LOG}'], 'w').write('{json.dumps(words)}'); 1/0"
    run = start(job(Worker=python(code)))
    assert run.wait() == 1
    assert "  worker-0: exited with 1: WorkerFailed: no data\n" in run.err
    assert run.err.count("no data") == 1


RAISES = """
import sys, time

def step(n):
    raise ValueError("no data")

time.sleep(float(sys.argv[1]))
step(5)
"""


def test_a_failure_is_reported_once_with_its_place_and_the_next_step(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RAISES)
    run = start(job(Master=python(SLEEP), Worker=role(["python", "train.py", "0"])))
    assert run.wait() == 1
    report = run.err.partition("tiny: Failed after")[2].splitlines()[1:5]
    assert report == [
        "  PyTorchJob tiny is failed because 1 Worker replica(s) failed.",
        "  worker-0: exited with 1: ValueError: no data",
        "  at train.py:5, in step; the traceback is above",
        "  next: correct train.py, line 5, and run the job again",
    ]
    assert run.err.count("ValueError") == 1
    assert run.out.count("Traceback") == 1
    assert "Next:" not in run.err


@pytest.mark.parametrize(("options", "tracebacks"), [((), 1), (("--verbose",), 3)], ids=["once", "verbose"])
def test_an_error_that_comes_again_after_restarts_has_one_traceback(
    start: Start, tmp_path: Path, options: tuple[str, ...], tracebacks: int
) -> None:
    (tmp_path / "train.py").write_text(RAISES)
    run = start(job(Worker=role(["python", "train.py", "0"], policy="OnFailure")), *options)
    assert run.wait() == 1
    assert run.out.count("Traceback (most recent call last)") == tracebacks
    assert run.out.count("ValueError: no data") == 3
    assert "2 restarts" in run.err


@pytest.mark.parametrize(
    ("code", "number", "status"),
    [
        pytest.param("", None, 0, id="after success"),
        pytest.param("raise SystemExit(3)", None, 1, id="after a failure"),
        pytest.param("time.sleep(1000)", signal.SIGINT, 130, id="after Ctrl-C"),
        pytest.param("time.sleep(1000)", signal.SIGTERM, 143, id="after SIGTERM"),
    ],
)
def test_no_temporary_folder_is_left(start: Start, code: str, number: signal.Signals | None, status: int) -> None:
    with tempfile.TemporaryDirectory(prefix="tmp-") as temporary:
        before = os.listdir(temporary)
        leaves = f"import tempfile, time; print('made', tempfile.mkdtemp(), flush=True); {code}"
        run = start(job(Worker=python(leaves)), env={"TMPDIR": temporary})
        if number is not None:
            run.until("made")
            run.signal(number)
        assert run.wait() == status
        assert run.out.count(f"made {temporary}/pytorchjob-run-") == 1
        assert os.listdir(temporary) == before == []


def test_the_stages_of_a_job_without_agents_are_honest(start: Start) -> None:
    run = start(job(Worker=python(HELLO)))
    assert run.wait() == 0
    assert "tiny: Running, 1/1 ready, 0 restarts" in run.err
    assert "Training" not in run.err


def test_sighup_scales_the_workers_up_and_down(start: Start, tmp_path: Path) -> None:
    path = write(tmp_path / "scaled.yaml", job(Master=python(SLEEP), Worker=python(SLEEP)))
    run = start(path)
    run.until("pid=", times=2)
    write(path, job(Master=python(SLEEP), Worker=python(SLEEP, replicas=3)))
    run.signal(signal.SIGHUP)
    run.until("pid=", times=4)
    write(path, job(Master=python(SLEEP), Worker=python(SLEEP, replicas=1)))
    run.signal(signal.SIGHUP)
    until(lambda: sum(map(alive, run.pids())) == 2)
    assert "workers: 1 -> 3" in run.err
    assert "Deleted 2 pods: tiny-worker-2, tiny-worker-1: the job was scaled down" in run.err


def test_a_file_that_has_become_invalid_scales_nothing(start: Start, tmp_path: Path) -> None:
    path = write(tmp_path / "scaled.yaml", job(Worker=python(SLEEP)))
    run = start(path)
    run.until("pid=")
    write(path, job(Worker=python(SLEEP, replicas=0)))
    run.signal(signal.SIGHUP)
    run.until("the job is not scaled, because its file cannot be used: spec.pytorchReplicaSpecs.Worker.replicas")
    assert run.process.poll() is None


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, id="Ctrl-C ends with 130 and leaves no process"),
        pytest.param(signal.SIGTERM, 143, id="SIGTERM ends with 143 and leaves no process"),
        pytest.param(signal.SIGKILL, -9, id="nothing outlives a runner that was killed"),
    ],
)
def test_nothing_is_left(start: Start, number: signal.Signals, status: int) -> None:
    run = start(job(Master=python(NESTED), Worker=python(NESTED, replicas=2)))
    run.until("pid=", times=6)
    run.signal(number)
    assert run.wait() == status
    until(lambda: not any(map(alive, run.pids())))
    assert len(run.pids()) == 6


@pytest.mark.parametrize(
    ("options", "number"),
    [
        pytest.param((), signal.SIGINT, id="by Ctrl-C"),
        pytest.param((), signal.SIGTERM, id="by SIGTERM"),
        pytest.param(("--timeout", "2"), None, id="by the time limit"),
    ],
)
def test_a_run_that_is_ended_early_shows_that_it_was_stopped(
    start: Start, options: tuple[str, ...], number: signal.Signals | None
) -> None:
    run = start(job(Worker=python(SLEEP)), *options)
    if number is not None:
        run.until("pid=")
        run.signal(number)
    run.wait()
    last = [line for line in run.err.splitlines() if line.startswith("tiny: ")][-1]
    assert re.fullmatch(r"tiny: stopped while (Created|Running) after \d+ s", last), run.err


def test_the_second_ctrl_c_kills_at_once(start: Start) -> None:
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN);" + SLEEP
    run = start(job(Worker=python(stubborn)), "--grace", "10000")
    run.until("pid=")
    run.signal(signal.SIGINT)
    run.until("press Ctrl-C again to kill them")
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    assert not any(map(alive, run.pids()))


def test_two_jobs_at_once_have_other_ports_and_addresses(start: Start) -> None:
    code = "import os, time; print('at', os.environ['MASTER_ADDR'], os.environ['MASTER_PORT']);" + SLEEP
    runs = [start(job(Master=python(code))) for _ in range(2)]
    for run in runs:
        run.until("pid=")
    first, second = (run.out.split(" at ")[1].split()[:2] for run in runs)
    assert first[0] != second[0]
    assert first[1] != second[1]
    assert sum("is in use on this machine" in run.err for run in runs) >= 1


def test_timeout_stops_the_job(start: Start) -> None:
    def stopped(number: int) -> None:
        run = start(job(Worker=python(SLEEP)), "--timeout", str(4**number), "-o", "yaml")
        assert run.wait() == 124
        assert "time limit of --timeout is over" in run.err
        assert yaml.safe_load(run.out)["status"]["conditions"][-1]["type"] == "Running", "it ran when the time was over"

    again(stopped)


def test_what_cannot_be_honoured_is_said_once(start: Start) -> None:
    mounted = python(HELLO, replicas=3, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    mounted["template"]["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    run = start(job(Worker=mounted))
    assert run.wait() == 0
    assert run.err.count("volumes are not mounted: data at /data") == 1


def test_replicas_overrides_the_number_of_workers(start: Start) -> None:
    run = start(job(Worker=python("import os; print('world', os.environ['WORLD_SIZE'])")), "--replicas", "3")
    assert run.wait() == 0
    assert run.out.count("world 3") == 3


@pytest.mark.torch
def test_ranks_of_real_torch_reach_each_other(start: Start) -> None:
    code = (
        "import torch, torch.distributed as d; d.init_process_group('gloo'); t = torch.ones(1); d.all_reduce(t);"
        "print('sum', int(t)); d.destroy_process_group()"
    )
    run = start(job(Master=python(code), Worker=python(code, replicas=2)))
    assert run.wait() == 0, run.out + run.err
    assert run.out.count("sum 3") == 3


@pytest.mark.torch
def test_the_agent_runs_from_its_source(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n")
    command = ["pytorchjob-agent", "run", "--", "--nproc-per-node", "1", "train.py"]
    run = start(job(Master=role(command), Worker=role(command)))
    assert run.wait() == 0, run.out + run.err
    assert "rank 0 of 2" in run.out
    assert "rank 1 of 2" in run.out
