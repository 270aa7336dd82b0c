"""Unmodified scripts that hang or only look like it, as real processes. The watch gets the time: five seconds a check.

The scripts print `ready` and then do what their name says. What is slow is faster here than in life, because a check
comes after a twentieth of a second.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pytorchjob_agent.contract.hang_rules import HangRules
from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.hangs.meter import WorkerMeter
from pytorchjob_agent.hangs.standing import job_still_for
from pytorchjob_agent.hangs.stillness import Pauses
from pytorchjob_agent.hangs.watch import HangWatch
from pytorchjob_agent.rendezvous import agreement
from pytorchjob_agent.rendezvous.agreement import MemberStanding, PeerHeartbeats
from pytorchjob_agent.rendezvous.hang_verdict import HangVerdict
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.script.agent_side import ProgressFiles
from pytorchjob_agent.stacks.recorders import Recorders
from pytorchjob_agent.stacks.stack_dump import StackDumps
from tests.agent.rendezvous.test_agreement import Store
from tests.processes import Turns

CHECK, LIMIT, PAUSE = 5.0, 120.0, 0.05
IMPORTS = "import multiprocessing, os, queue, signal, socket, subprocess, sys, tempfile, threading, time\n"
READY = "print('ready', flush=True)\n"
SLEEPS = f"{READY}time.sleep(600)"
_PTRACE_ATTACH = 16


def still_for(meter: WorkerMeter, now: float) -> float:
    """For how long the workers of one pod are still that is alone in its job."""
    return job_still_for(meter.standings(now), ())


class Workers:
    """The workers of one pod, with their watch."""

    def __init__(self, folder: Path, *codes: str) -> None:
        folder.mkdir(exist_ok=True)
        self.files, self.stacks = ProgressFiles(folder, len(codes)), StackDumps(folder, len(codes))
        self.recorders = Recorders(folder, len(codes))
        self.processes = [self._start(folder, local_rank, code) for local_rank, code in enumerate(codes)]
        for process in self.processes:
            assert process.stdout is not None
            process.stdout.readline()
        self.turns = Turns([process.pid for process in self.processes])
        self.now = time.monotonic()  # noqa: TID251  the watch has the same clock

    def _start(self, folder: Path, local_rank: int, code: str) -> subprocess.Popen[str]:
        path = folder / f"train{local_rank}.py"
        path.write_text(IMPORTS + code)
        env = {**os.environ, **self.stacks.env(local_rank, os.environ), **self.recorders.env(local_rank)}
        return subprocess.Popen([sys.executable, path], env=env, stdout=subprocess.PIPE, text=True)

    def watch(self, rules: HangRules = HangRules()) -> HangWatch:  # noqa: B008
        pids = {local_rank: process.pid for local_rank, process in enumerate(self.processes)}
        self.meter = WorkerMeter(pids, self.stacks, recorders=self.recorders)
        return HangWatch(rules, self.files, self.meter)

    def verdict(self, watch: HangWatch, seconds: float) -> tuple[HangVerdict | None, float]:
        """The first verdict within this time, and when it comes."""
        for check in range(int(seconds / CHECK)):
            verdict = watch.check(self.now + check * CHECK)
            if verdict is not None:
                return verdict, check * CHECK
            time.sleep(PAUSE)
            self.answered()
        return None, seconds

    def answered(self) -> None:
        """Give workers that were asked for their stacks a moment more: five seconds are short here."""
        for _ in range(20):
            self.turns.wait()
            if all(self.stacks.size(rank) for rank in self.meter.asked):
                return
            time.sleep(PAUSE)

    def longest_still(self, seconds: int) -> float:
        """For how long they are still at most, with a limit of twelve seconds and a check each second."""
        pids = {local_rank: process.pid for local_rank, process in enumerate(self.processes)}
        self.meter, longest = WorkerMeter(pids, self.stacks, Pauses(12.0)), 0.0
        for second in range(seconds):
            self.meter.measure(self.now + second)
            longest = max(longest, still_for(self.meter, self.now + second))
            time.sleep(PAUSE)
            self.turns.wait()
        return longest

    def end(self) -> None:
        for process in self.processes:
            subprocess.run(["pkill", "-9", "-P", str(process.pid)], check=False)
            process.kill()
            process.communicate()


Start = Callable[..., Workers]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Workers] = []

    def begin(*codes: str) -> Workers:
        started.append(Workers(tmp_path, *codes))
        return started[-1]

    yield begin
    for workers in started:
        workers.end()


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(SLEEPS, id="a sleep"),
        pytest.param(f"{READY}while True: time.sleep(0.02)", id="a sleep in a loop"),
        pytest.param(f"lock = threading.Lock(); lock.acquire()\n{READY}lock.acquire()", id="a lock"),
        pytest.param(f"{READY}queue.Queue().get()", id="a queue"),
        pytest.param(f"{READY}multiprocessing.Queue().get()", id="a queue of another process"),
        pytest.param(f"{READY}threading.Event().wait()", id="an event"),
        pytest.param(f"{READY}os.read(os.pipe()[0], 1)", id="a pipe"),
        pytest.param(
            f"thread = threading.Thread(target=time.sleep, args=(600,)); thread.start()\n{READY}thread.join()",
            id="a thread that sleeps",
        ),
        pytest.param(
            f"import concurrent.futures\npool = concurrent.futures.ProcessPoolExecutor(1)\n{READY}"
            "pool.submit(time.sleep, 600).result()",
            id="a process that sleeps",
        ),
        pytest.param(f"{READY}subprocess.run(['sleep', '600'])", id="a program that sleeps"),
    ],
)
def test_a_hang_without_any_setting(start: Start, code: str) -> None:
    workers = start(code)
    verdict, after = workers.verdict(workers.watch(), 300)
    assert verdict is not None
    assert "no rank has made progress of any kind" in verdict.reason
    assert LIMIT < after <= LIMIT + 60


def test_a_stopped_process_without_any_setting(start: Start) -> None:
    workers = start(SLEEPS)
    workers.processes[0].send_signal(signal.SIGSTOP)
    os.waitpid(workers.processes[0].pid, os.WUNTRACED)
    verdict, after = workers.verdict(workers.watch(), 300)
    assert verdict is not None
    assert verdict.reason.startswith("local rank 0: stopped by a signal (SIGSTOP)")
    assert after <= 80


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(f"{READY}while True: pass", id="computing"),
        pytest.param(
            f"{READY}while True:\n    sum(range(1_000_000))\n    time.sleep(0.3)",
            id="computing in pauses",
        ),
        pytest.param(f"{READY}while True:\n    time.sleep(0.5)\n    print('step', flush=True)", id="printing"),
        pytest.param(
            f"file = tempfile.TemporaryFile()\n{READY}"
            "while True:\n    file.write(bytes(100_000)); file.flush(); time.sleep(0.3)",
            id="writing a file",
        ),
        pytest.param(
            f"{READY}while True: subprocess.run(['sleep', '0.4'])", id="waiting for one program after the other"
        ),
        pytest.param(
            "server = socket.create_server(('127.0.0.1', 0)); client = socket.create_connection(server.getsockname())\n"
            f"{READY}client.recv(1)",
            id="waiting for the network",
        ),
        pytest.param(
            "server = socket.create_server(('127.0.0.1', 0)); client = socket.create_connection(server.getsockname())\n"
            f"client.settimeout(600)\n{READY}client.makefile('rb').read(1)",
            id="waiting for the network with a timeout",
        ),
        pytest.param(f"import asyncio\n{READY}asyncio.run(asyncio.sleep(600))", id="serving requests"),
        pytest.param(f"{READY}os.execvp('sleep', ['sleep', '600'])", id="no Python at all"),
    ],
)
def test_no_hang(start: Start, code: str) -> None:
    workers = start(code)
    assert workers.longest_still(60) <= 12


RECORDS = """import types
from pytorchjob_agent.workers.startup.pytorchjob_recorder import RECORDER, CollectiveRecorder
recorder = CollectiveRecorder(os.environ[RECORDER])
group = recorder.add("0")
def begin():
    recorder.begin(group, types.SimpleNamespace(name=types.SimpleNamespace(name="BARRIER"), input_tensors=[]))
"""
POLLS = f"{RECORDS}begin()\nbegin()\n{READY}while True: sum(range(1000))"
"""It looks like a rank that waits for its GPU: busy, at lines that change, and in no collective by its stack."""


@pytest.mark.parametrize(
    ("other", "hangs"),
    [
        pytest.param(f"{RECORDS}begin()\n{SLEEPS}", True, id="for one that rests"),
        pytest.param(f"{RECORDS}begin()\n{READY}while True: sum(range(1000))", False, id="for one that works"),
        pytest.param(f"{RECORDS}begin()\nbegin()\n{SLEEPS}", False, id="for none, and evaluates"),
        pytest.param(
            f"{RECORDS}begin()\n{READY}while True: print('evaluates', flush=True); time.sleep(0.05)",
            False,
            id="for one that prints",
        ),
    ],
)
def test_a_rank_that_polls_for_another_one_is_still_as_long_as_that_one(start: Start, other: str, hangs: bool) -> None:
    """The processes record collectives as torch's hooks do; they are no ranks of torch."""
    workers = start(POLLS, other)
    verdict, _ = workers.verdict(workers.watch(), 240)
    assert (verdict is not None) is hangs


def test_one_rank_that_works_is_enough(start: Start) -> None:
    """The other one may wait for it."""
    workers = start(SLEEPS, f"{READY}while True: pass")
    assert workers.verdict(workers.watch(), 240)[0] is None


def test_a_rank_of_another_pod_that_works_is_enough(start: Start) -> None:
    workers, reported = start(SLEEPS), []
    watch = workers.watch()

    def share(standing: MemberStanding) -> tuple[MemberStanding, ...]:
        reported.append(standing.still)
        return (MemberStanding(),)

    watch.share = share
    assert workers.verdict(watch, 240)[0] is None
    assert max(reported) > LIMIT, "the other members learn that nothing moves here"


def test_two_agents_find_a_hang_together_and_that_of_rank_0_reports_it(tmp_path: Path) -> None:
    place = Assigned(RoundId(1, 1), 0, 2, 0, 2, "10.0.0.1", 1000, 0, secret="5ec2e7")
    memory = Store()
    stores = [SignedStore(memory, replace(place, rank=rank)) for rank in range(2)]
    agreement.prepare(stores[0])
    heartbeats = [PeerHeartbeats(store.assigned, 0.0) for store in stores]
    pods = [Workers(tmp_path / str(rank), SLEEPS) for rank in range(2)]
    watches = [pod.watch() for pod in pods]
    verdicts: list[HangVerdict | None] = [None, None]
    try:
        for now in range(0, 300, int(CHECK)):
            for rank in (1, 0):
                heartbeats[rank].exchange(stores[rank], lambda now=now: float(now))  # type: ignore[misc]
                watches[rank].share = partial(share, heartbeats[rank], float(now))
                verdicts[rank] = watches[rank].check(pods[rank].now + now)
                pods[rank].answered()
    finally:
        for pod in pods:
            pod.end()
    assert verdicts[0] is not None
    assert "no rank has made progress of any kind" in verdicts[0].reason
    assert verdicts[1] is None, "its agent knows of no other rank"


def share(heartbeats: PeerHeartbeats, now: float, standing: MemberStanding) -> tuple[MemberStanding, ...] | None:
    heartbeats.standing = standing
    return heartbeats.others(now)


def test_a_worker_with_a_debugger_is_left_alone(start: Start) -> None:
    workers = start(SLEEPS)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(_PTRACE_ATTACH, workers.processes[0].pid, None, None):
        pytest.skip("this machine does not allow ptrace")
    os.waitpid(workers.processes[0].pid, 0)
    assert workers.verdict(workers.watch(), 240)[0] is None


def test_the_rule_may_be_switched_off(start: Start) -> None:
    workers = start(SLEEPS)
    assert workers.verdict(workers.watch(HangRules(idle_seconds=0.0)), 240)[0] is None


def test_the_traffic_of_the_machine_does_not_hide_an_idle_worker(start: Start) -> None:
    """A local run and a pod on the host's network see the traffic of everything."""
    server = "import socket, time\nserver = socket.create_server(('127.0.0.1', 0))\n"
    talk = (
        "client = socket.create_connection(server.getsockname())\nlink, _ = server.accept()\n"
        "print('ready', flush=True)\n"
        "while True:\n    client.sendall(bytes(1000)); link.recv(1000); time.sleep(0.001)\n"
    )
    noise = subprocess.Popen([sys.executable, "-c", server + talk], stdout=subprocess.PIPE)
    try:
        assert noise.stdout is not None
        noise.stdout.readline()
        workers = start(SLEEPS)
        verdict, after = workers.verdict(workers.watch(HangRules(idle_seconds=300.0)), 400)
        assert verdict is not None
        assert "limit 300 s" in verdict.reason
        assert after > 290
    finally:
        noise.kill()
        noise.communicate()
