"""Real torch processes below a real agent."""

import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pytorchjob_agent.contract.coordinator_endpoint import CoordinatorEndpoint
from tests.agent.conftest import Agent, alive
from tests.ports import free_port
from tests.waiting import until

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

_OUTGOING = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
WORKER = str(Path(__file__).parents[1] / "worker.py")
Start = Callable[..., Agent]


def two_nodes(port: str, rank: int) -> dict[str, str]:
    """Return the environment of one of two replicas, as the operator writes it."""
    names = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": str(rank), "WORLD_SIZE": "2"}
    pet = {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": port, "PET_NODE_RANK": str(rank), "PET_NNODES": "2"}
    return {**names, **pet, "PET_NPROC_PER_NODE": "1"}


def elastic(port: str, least: int) -> dict[str, str]:
    """Return the environment of one replica of an elastic job."""
    return {
        "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_CONF": "last_call_timeout=1",
        "PET_NNODES": f"{least}:2",
        "PET_NPROC_PER_NODE": "1",
    }


def test_two_workers_of_one_pod_succeed(agent: Start) -> None:
    run = agent("--nproc-per-node=2", WORKER, "reduce")
    assert run.end() == 0, run.text()
    assert "[rank0]: rank=0 sum=2" in run.text()
    assert "[rank1]: rank=1 sum=2" in run.text()


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        pytest.param("raise", 1, "ValueError: no such luck", id="an exception, without @record"),
        pytest.param("exit", 17, "exited with 17", id="a code of its own"),
        pytest.param("kill", 137, "killed by SIGKILL", id="a signal"),
    ],
)
def test_the_first_failed_worker_is_named(agent: Start, what: str, code: int, words: str) -> None:
    run = agent("--nproc-per-node=2", WORKER, what)
    assert run.end() == code, run.text()
    message = run.message()
    assert (message.exit_code, message.rank, message.failed_after) == (code, 1, (0,))
    assert words in message.message


def test_a_worker_that_fails_once_is_started_again(agent: Start) -> None:
    run = agent("--nproc-per-node=2", "--max-restarts=1", WORKER, "once")
    assert run.end() == 0, run.text()
    assert "[rank1]: round 1" in run.text()


@pytest.mark.parametrize(
    ("signum", "code"), [pytest.param(signal.SIGTERM, 143, id="SIGTERM"), pytest.param(signal.SIGINT, 130, id="Ctrl-C")]
)
def test_a_signal_in_training_leaves_nothing_behind(agent: Start, signum: int, code: int, tmp_path: Path) -> None:
    run = agent("--nproc-per-node=2", WORKER, "busy", TAG=f"tag={tmp_path}")
    run.says("[rank1]: busy")
    assert run.leave(signum) == code, run.text()
    assert run.message().reason == "Drained"
    assert alive(f"tag={tmp_path}") == []


def test_a_worker_that_ignores_sigterm_is_killed_when_its_time_is_over(agent: Start, tmp_path: Path) -> None:
    run = agent(WORKER, "deaf", PYTORCHJOB_GRACE_SECONDS="1", TAG=f"tag={tmp_path}")
    run.says("deaf")
    assert run.leave() == 143, run.text()
    assert "did not stop within 1 s" in run.text()
    assert alive(f"tag={tmp_path}") == []


def test_workers_go_when_the_agent_is_killed(agent: Start, tmp_path: Path) -> None:
    run = agent(WORKER, "deaf", TAG=f"tag={tmp_path}", TORCH_ELASTIC_SHUTDOWN_TIMEOUT="1")
    run.says("deaf")
    assert run.leave(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: alive(f"tag={tmp_path}") == [])


@pytest.mark.parametrize("rank", [pytest.param(0, id="the master waits"), pytest.param(1, id="a worker waits")])
def test_sigterm_before_the_others_came(agent: Start, rank: int, tmp_path: Path) -> None:
    port = str(free_port())
    run = agent(WORKER, "reduce", TAG=f"tag={tmp_path}", **two_nodes(port, rank))
    until(lambda: _listens(port) if rank == 0 else len(alive(f"tag={tmp_path}")) == 2)
    assert run.leave() == 143, run.text()
    assert alive(f"tag={tmp_path}") == []


def _listens(port: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def test_two_pods_meet_at_the_master(agent: Start) -> None:
    port = str(free_port())
    pair = [agent(WORKER, "reduce", **two_nodes(port, rank)) for rank in (1, 0)]
    assert [member.end() for member in pair] == [0, 0], pair[0].text() + pair[1].text()
    assert "rank=1 sum=2" in pair[0].text()


@pytest.mark.parametrize("least", [pytest.param(1, id="one is enough"), pytest.param(2, id="both are needed")])
def test_two_pods_meet_elastically(agent: Start, least: int) -> None:
    env = elastic(str(free_port()), least)
    pods = [agent(WORKER, "reduce", **env) for _ in range(least)]
    assert [pod.end() for pod in pods] == [0] * least, pods[0].text()
    assert f"sum={least}" in pods[0].text()
    ports = {int(port) for pod in pods for port in re.findall(r"port=(\d+)", pod.text())}
    assert len(ports) == 1
    assert max(ports) < _OUTGOING, "another program may get it before the worker opens it"


@pytest.mark.parametrize(
    "outer",
    [
        pytest.param({"PET_NPROC_PER_NODE": "2"}, id="in a pod: its size counts", marks=pytest.mark.long),
        pytest.param({"TORCHELASTIC_RUN_ID": "x", "PET_NPROC_PER_NODE": "3"}, id="below a worker: nothing counts"),
    ],
)
def test_a_standalone_run_is_no_part_of_the_job_around_it(agent: Start, outer: dict[str, str]) -> None:
    rest = {"MASTER_ADDR": "10.0.0.1", "PET_NNODES": "3", "PET_RDZV_ENDPOINT": "10.0.0.1:1", "PET_MASTER_PORT": "1"}
    sizes = ["--nproc-per-node=2"] if "TORCHELASTIC_RUN_ID" in outer else []
    run = agent("--standalone", *sizes, "--", WORKER, "reduce", **rest, **outer)
    assert run.end() == 0, run.text()
    assert "rank=1 sum=2" in run.text()


def test_a_standalone_run_keeps_its_port_through_restarts(agent: Start) -> None:
    run = agent(
        "--standalone", f"--master-port={free_port()}", "--nproc-per-node=2", "--max-restarts=1", WORKER, "once"
    )
    assert run.end() == 0, run.text()
    assert "[rank1]: round 1" in run.text()


@pytest.mark.parametrize(
    ("what", "starts", "code", "words"),
    [
        pytest.param("missing module", 1, 1, "Every start repeats ModuleNotFoundError", id="a missing module"),
        pytest.param("usage", 1, 2, "wrong command line or script", id="a wrong command line"),
        pytest.param("value", 3, 1, "", id="an error that may not come again"),
    ],
)
def test_a_failure_that_every_start_repeats_is_not_repeated(
    agent: Start, what: str, starts: int, code: int, words: str
) -> None:
    run = agent("--standalone", "--max-restarts=2", WORKER, what)
    assert run.end() == code, run.text()
    assert run.text().count("]: starts") == starts
    assert words in run.text()


def test_a_standalone_run_has_one_node(agent: Start) -> None:
    run = agent("--standalone", "--nnodes=2", WORKER, "reduce")
    assert run.end() == 78, run.text()
    assert "--nnodes: 2 with --standalone: expected 1" in run.message().message


@pytest.mark.long
def test_rendezvous_and_workers_do_without_libuv(agent: Start) -> None:
    port = str(free_port())
    pair = [agent(WORKER, "reduce", USE_LIBUV="0", **two_nodes(port, rank)) for rank in (0, 1)]
    assert [member.end() for member in pair] == [0, 0], pair[0].text() + pair[1].text()
    assert "sum=2 libuv=0" in pair[0].text()


def test_a_master_that_never_comes_is_named(agent: Start) -> None:
    port = str(free_port())
    run = agent("--rdzv-conf=timeout=1", WORKER, "reduce", **two_nodes(port, 1))
    assert run.end() == 201, run.text()
    assert f"127.0.0.1:{port} was not reached within 1 s" in run.message().message


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param(["--master-port=70000"], "--master-port=70000: expected a port", id="a port"),
        pytest.param(["--max-restarts=-1"], "--max-restarts=-1: expected 0 or more", id="a number of restarts"),
        pytest.param(
            ["--max-restarts=x"],
            "torchrun's arguments are wrong: argument --max-restarts",
            id="no number",
            marks=pytest.mark.long,
        ),
        pytest.param(
            ["--nnodes=1:2", "--rdzv-backend=static"],
            "--nnodes=1:2: the rendezvous static",
            id="a range",
            marks=pytest.mark.long,
        ),
        pytest.param(["--rdzv-backend=nonsense", "--rdzv-endpoint=h:1"], "--rdzv-backend=nonsense:", id="a backend"),
        pytest.param(
            ["--local-ranks-filter=a"],
            "torchrun refuses its arguments: --local_ranks_filter",
            id="a filter",
            marks=pytest.mark.long,
        ),
        pytest.param(
            ["--no-python", "--module"],
            "torchrun refuses its arguments: Don't use both",
            id="two kinds",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_flag_that_cannot_work_is_refused_at_once_in_a_sentence(agent: Start, argv: list[str], words: str) -> None:
    run = agent(*argv, WORKER, "reduce")
    assert run.end() == 2, run.text()
    assert words in run.message().message
    assert run.message().reason == "BadUsage"
    assert "Traceback" not in run.text()


def member_env(monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    """The variables of a pod that trains with a coordinator."""
    endpoint = CoordinatorEndpoint("10.0.0.1", 29600, "token", "uid-x", "x-worker-0", 0)
    variables = {str(variable["name"]): str(variable.get("value", "uid")) for variable in endpoint.to_env()}
    for name, value in {**variables, "PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", **more}.items():
        monkeypatch.setenv(name, value)


def test_a_member_takes_from_the_job_what_its_flags_do_not_decide(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pytorchjob_agent.command import launcher

    member_env(monkeypatch, PET_MAX_RESTARTS="5")
    args = launcher.parse(["--max-restarts=2", "--nnodes=2", "--role=trainer", "train.py"])
    assert (args.rdzv_backend, args.nnodes, args.max_restarts, args.role) == ("pytorchjob", "2", 5, "trainer")
    assert (
        "--max-restarts=2 has no effect in this job: elasticPolicy.maxRestarts decides (5)" in capsys.readouterr().err
    )


def test_a_rendezvous_on_the_command_line_is_named_and_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pytorchjob_agent.command import launcher

    member_env(monkeypatch)
    args = launcher.parse(["--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "--max-restarts=2", "train.py"])
    assert (args.rdzv_backend, args.rdzv_endpoint, args.max_restarts) == ("c10d", "h:1", 2)
    assert "--rdzv-backend is given: this pod trains without the coordinator" in capsys.readouterr().err


def test_arguments_that_torchrun_does_not_know(agent: Start) -> None:
    run = agent("--no-such-flag", WORKER)
    assert run.end() == 2
    assert run.message().reason == "BadUsage"
