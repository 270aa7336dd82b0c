"""An intruder wants to restart a working job by an invented hang, or to blind the agent for real ones.

It reaches the port of the round's store, and knows everything but the round's secret; or it is the script itself.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.hangs.meter import WorkerMeter
from pytorchjob_agent.rendezvous import agreement, round_store
from pytorchjob_agent.rendezvous.agreement import MemberStanding, PeerHeartbeats
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.stacks.stack_dump import StackDumps
from tests.attacks.bystander import Bystander, watching_beside
from tests.attacks.neighbour import neighbour
from tests.attacks.target import ROOT

_WORK_SECONDS = 0.05
"""CPU seconds of a worker between two measurements: far more than it takes to write a stack."""
ZERO = Assigned(RoundId(3, 7), 0, 2, 0, 2, "127.0.0.1", 1, 0, secret="5ec2e7")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with round_store.listen("127.0.0.1") as opened:
        yield opened


@pytest.mark.torch
def test_an_intruder_cannot_make_a_working_rank_seem_still(listener: socket.socket) -> None:
    """Rank 0's workers wait for rank 1, which evaluates. A report of rank 1 that it is still too would restart all."""
    raw = round_store.serve(listener)
    zero, one = (SignedStore(raw, replace(ZERO, rank=rank)) for rank in (0, 1))
    agreement.prepare(zero)
    reader, writer = PeerHeartbeats(zero.assigned, 0.0), PeerHeartbeats(one.assigned, 0.0)
    writer.standing = MemberStanding(500.0)
    writer.exchange(one, lambda: 0.5)
    old = raw.get("heartbeat/1").decode()
    writer.standing = MemberStanding()
    found, seconds = set[float](), count(1)

    def replay() -> None:
        second = next(seconds)
        writer.exchange(one, lambda: float(second))
        reader.exchange(zero, lambda: float(second))
        raw.set("heartbeat/1", f"{'0' * 64} 1 {1000 + second} 500" if second % 2 else old)
        reader.exchange(zero, lambda: second + 0.5)
        found.update(other.still for other in reader.others(second + 0.6) or ())

    with neighbour("127.0.0.1", listener.getsockname()[1]) as bystander:
        for _ in range(19):
            replay()
        bystander.while_repeated(replay)
    assert found == {0.0}


@contextmanager
def local_agent() -> Iterator[Bystander]:
    """Another agent on this machine, with a coordinator of its own, as `pytorchjob run` starts them."""
    command = [sys.executable, "-m", "tests.attacks.local_agent"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        output = process.stdout
        assert output is not None
        what = "an agent of another local run: a message and its answer"
        try:
            with watching_beside(what, lambda: float(output.readline()), pause=0.0) as found:
                yield found
        finally:
            process.terminate()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"\xff" * (1 << 20), id="no text"),
        pytest.param(b'  File "/dev/zero", line 1 in f\n' * 100_000, id="a file without an end"),
        pytest.param(b'  File "%s", line 1 in f\n', id="a pipe that no process writes to"),
        pytest.param(b'  File "\0", line 99999999999999999999 in f\n', id="no name and no line"),
    ],
)
def test_a_script_cannot_hold_its_agent_up_by_the_stacks_that_it_writes(tmp_path: Path, text: bytes) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    stacks = StackDumps(tmp_path / "stacks", 1)
    path = next((tmp_path / "stacks").glob("*.stack"))
    path.write_bytes(b"Current thread 0x1 (most recent call first):\n" + text.replace(b"%s", str(pipe).encode()))
    meter, times = WorkerMeter({0: os.getpid()}, stacks), count(0.0, 10.0)

    def measure() -> None:
        now, used = next(times), time.process_time()
        while time.process_time() < used + _WORK_SECONDS:  # this process is the worker too
            pass
        meter.asked.add(0)
        meter.measure(now)
        assert [rank.still for rank in meter.standings(now)] == [0.0]

    with local_agent() as bystander:
        for _ in range(3):
            measure()
        bystander.while_repeated(measure)
