"""The coordinator of `pytorchjob run`, with replicas that speak to it and start no workers."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.local.jobs import Run, job, role

AGENT = """
import os, socket, sys, time
from pytorchjob_agent.contract.coordinator_endpoint import CoordinatorEndpoint
from pytorchjob_agent.contract.messages import Heartbeat, Done, Failed, Hello, Join, read_to_agent

env = CoordinatorEndpoint.from_env(os.environ)
if env is None:
    print("no coordinator")
    sys.exit()
token = open(env.token_file).read()
hello = Hello(job=env.job, pod=env.pod, token=token, index=env.index, address="127.0.0.1", nproc=1,
              incarnation=str(os.getpid()), pod_uid=env.pod_uid)


def messages():
    # An agent that the coordinator does not know yet connects again, as the real one does.
    global sock
    while True:
        sock = socket.create_connection((env.host, env.port))
        sock.sendall(hello.to_line() + Join(4000).to_line())
        for line in sock.makefile("rb"):
            message = read_to_agent(line)
            if message.kind == "refused":
                assert message.again, message
                break
            yield message
        else:
            return
        time.sleep(0.05)


for message in messages():
    if message.kind == "assigned":
        joined = "FAILS" in os.environ
        print(f"assigned rank={message.rank} of {message.size} restarts={message.restarts} uid={env.pod_uid}")
        if "FAILS" in os.environ:
            sock.sendall(Failed(message.round, rank=message.rank, local_rank=0, exit_code=7, message="boom").to_line())
            sock.sendall(Join(4000).to_line())
        else:
            steps = "STEPS" in os.environ
            sock.sendall(Heartbeat(step=5, total=20 if steps else None).to_line())
            if not steps:
                sock.sendall(Done(message.round).to_line())
    elif message.kind == "restart" and not joined:
        sock.sendall(Join(4000).to_line())
    elif message.kind == "finished":
        print("finished")
        sys.exit()
    elif message.kind == "stop":
        print(f"stop {message.reason}")
        time.sleep(1000 if "LINGERS" in os.environ else 0)
        sys.exit(message.exit_code)
"""


@pytest.fixture
def agent(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A role whose replicas are such agents."""
    (tmp_path / "pytorchjob_agent_double.py").write_text(AGENT)

    def make(replicas: int = 2, **env: str) -> dict[str, Any]:
        listed = [{"name": name, "value": value} for name, value in env.items()]
        return role(["python", "-u", "pytorchjob_agent_double.py"], replicas, "OnFailure", env=listed)

    return make


def test_replicas_meet_and_end_together(start: Callable[..., Run], agent: Callable[..., dict[str, Any]]) -> None:
    run = start(job(Master=agent(1), Worker=agent(2)))
    assert run.wait() == 0, run.err
    assert sorted(
        line.partition("assigned ")[2].split(" uid=")[0] for line in run.out.splitlines() if "rank" in line
    ) == [f"rank={rank} of 3 restarts=0" for rank in range(3)]
    assert run.out.count("finished") == 3
    assert "uid=tiny-worker-1-" in run.out
    assert "RoundStarted: Round 1.1 starts with 3 members and 3 workers" in run.err
    stages = [line.split()[1].rstrip(",") for line in run.err.splitlines() if line.startswith("tiny: ")]
    assert stages[0] == "Starting"  # a short stage may pass between two reads of the coordinator
    assert set(stages[1:-1]) <= {"Starting", "Joining", "Training", "Ending", "Restarting"}
    assert stages[-1] == "Succeeded"


def test_steps_are_on_the_screen(start: Callable[..., Run], agent: Callable[..., dict[str, Any]]) -> None:
    run = start(job(Worker=agent(2, STEPS="1")))
    run.until("tiny: Training, step 5/20, 25 %")
    run.signal(signal.SIGTERM)
    assert run.wait() == 143, run.err


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({"FAILS": "1"}, id="whose agents obey"),
        pytest.param({"FAILS": "1", "LINGERS": "1"}, id="whose agents do not"),
    ],
)
def test_a_verdict_ends_a_job(start: Callable[..., Run], agent: Callable[..., dict[str, Any]], env: Any) -> None:
    run = start(job(Worker=agent(2, **env), elastic={"maxRestarts": 1}), "--output", "json")
    assert run.wait() == 1, run.err
    assert run.conditions()[-1] == ("Failed", "True")
    assert "The one restart is used up" in run.err
    assert re.search(r"^tiny: Failed after \d+ s, 1 restart$", run.err, re.MULTILINE), run.err
    *before, last = [line for line in run.err.splitlines() if "boom" in line]
    assert all(line.startswith("! WorkerFailed: rank ") for line in before)  # of the restart, if it was seen
    assert len(before) <= 1
    assert last.startswith("  rank ")


def test_who_chose_a_rendezvous_has_no_coordinator(
    start: Callable[..., Run], agent: Callable[..., dict[str, Any]]
) -> None:
    run = start(job(Worker=agent(2), elastic={"rdzvBackend": "c10d"}))
    assert run.wait() == 0, run.err
    assert run.out.count("no coordinator") == 2


FREEZES = """
import os, pathlib, signal, socket, threading, time
from pytorchjob_agent.contract.coordinator_endpoint import CoordinatorEndpoint
from pytorchjob_agent.contract.messages import Done, Heartbeat, Hello, Join, read_to_agent

env = CoordinatorEndpoint.from_env(os.environ)
token = open(env.token_file).read()
hello = Hello(job=env.job, pod=env.pod, token=token, index=env.index, address="127.0.0.1", nproc=1,
              incarnation=str(os.getpid()), pod_uid=env.pod_uid)
frozen = pathlib.Path("frozen")


def beat(sock):
    while True:
        sock.sendall(Heartbeat().to_line())
        time.sleep(1)


while True:
    sock = socket.create_connection((env.host, env.port))
    sock.sendall(hello.to_line())
    for line in sock.makefile("rb"):
        message = read_to_agent(line)
        if message.kind == "welcome":
            sock.sendall(Join(4000).to_line())
            threading.Thread(target=beat, args=(sock,), daemon=True).start()
        elif message.kind == "assigned":
            print(f"assigned in {message.round} uid={env.pod_uid}")
            if env.index == 1 and not frozen.exists():
                frozen.touch()
                os.kill(os.getpid(), signal.SIGSTOP)
            elif frozen.exists() and message.round.number > 1:
                sock.sendall(Done(message.round).to_line())
        elif message.kind == "restart":
            sock.sendall(Join(4000, message.round).to_line())
        elif message.kind in ("finished", "stop"):
            raise SystemExit(0)
    time.sleep(0.1)
"""


@pytest.mark.long
def test_a_replica_whose_agent_is_frozen_is_replaced(start: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "pytorchjob_agent_double.py").write_text(FREEZES)
    run = start(job(Worker=role(["python", "-u", "pytorchjob_agent_double.py"], 2, "OnFailure")))
    run.until("waiting for tiny-worker-1 (its agent has sent nothing for")
    run.until("Deleted pod: tiny-worker-1: its agent has sent nothing for 6")
    run.until("Round 1.2 starts with 2 members")
    assert run.wait() == 0, run.err
