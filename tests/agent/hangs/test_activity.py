"""What a worker did between two readings of /proc, and what real processes show there."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pytorchjob_agent.hangs import process_reader
from pytorchjob_agent.hangs.activity import Interval, Motion, TreeReading, is_idle, motion

SPIN = "print('ready', flush=True)\nwhile True: pass"
SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
BEFORE = TreeReading(
    main=7,
    cpu=100.0,
    main_cpu=50.0,
    bytes=1e6,
    main_bytes=5e5,
    switches=1000,
    processes=frozenset({(7, 1), (8, 2)}),
    states=frozenset("S"),
    traffic={1: 1000, 2: 1000},
    main_traffic={1: 1000},
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, Motion.RESTS, id="nothing"),
        pytest.param({"cpu": 100.1}, Motion.RESTS, id="a thread that wakes up occasionally"),
        pytest.param({"cpu": 100.5}, Motion.BUSY, id="a thread or a child computes"),
        pytest.param({"cpu": 110.0, "main_cpu": 60.0}, Motion.SPINS, id="the main thread computes, or polls"),
        pytest.param({"cpu": 50.0}, Motion.RESTS, id="less CPU time than before: a child has ended, the next shows it"),
        pytest.param({"processes": frozenset({(7, 1)})}, Motion.BUSY, id="a child has ended"),
        pytest.param({"processes": frozenset({(7, 1), (8, 3)})}, Motion.BUSY, id="a new child with an old pid"),
        pytest.param({"main_cpu": 50.0002, "switches": 1001}, Motion.RESTS, id="the main thread polled a queue once"),
        pytest.param({"main_cpu": 50.0012, "switches": 1010}, Motion.RESTS, id="ten times"),
        pytest.param({"main_cpu": 50.0008, "switches": 1001}, Motion.SPINS, id="it did a small step"),
        pytest.param({"bytes": 1e6 + 30_000}, Motion.RESTS, id="a thread writes telemetry"),
        pytest.param({"bytes": 1e6 + 60_000}, Motion.BUSY, id="a thread or a child reads or writes"),
        pytest.param({"bytes": 1e6 + 20, "main_bytes": 5e5 + 20}, Motion.STIRS, id="the main thread prints a line"),
        pytest.param({"traffic": {1: 1000, 2: 31_000}}, Motion.RESTS, id="telemetry of a child"),
        pytest.param({"traffic": {1: 1000, 2: 61_000}}, Motion.BUSY, id="a child loads data"),
        pytest.param({"traffic": {1: 1000, 2: 1000, 3: 50_000}}, Motion.BUSY, id="over a new connection"),
        pytest.param({"traffic": None, "main_traffic": None}, Motion.RESTS, id="the traffic is unknown"),
        pytest.param({"main_traffic": {1: 1148}}, Motion.STIRS, id="a rank sent a few bytes"),
        pytest.param({"main_traffic": {}}, Motion.RESTS, id="a connection was closed"),
        pytest.param({"faults": 100}, Motion.BUSY, id="it reads a mapped file"),
        pytest.param({"states": frozenset("SD")}, Motion.BUSY, id="it waits for a disk"),
        pytest.param({"waits": frozenset({"request_wait_answer"})}, Motion.BUSY, id="for a file system in user space"),
        pytest.param({"waits": frozenset({"rpc_wait_bit_killable"})}, Motion.BUSY, id="for NFS"),
        pytest.param({"waits": frozenset({"wait_woken"})}, Motion.STIRS, id="for the network"),
        pytest.param({"waits": frozenset({"hrtimer_nanosleep", "futex_wait_queue"})}, Motion.RESTS, id="for a lock"),
        pytest.param({"traced": True, "states": frozenset("t")}, Motion.BUSY, id="a debugger is attached"),
    ],
)
def test_what_ten_seconds_show(changes: dict[str, object], expected: Motion) -> None:
    assert motion(BEFORE, replace(BEFORE, **changes), Interval(10.0)) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "idle"),
    [
        pytest.param({"main_bytes": 5e5 + 20, "main_cpu": 50.1}, True, id="its main thread prints a line"),
        pytest.param({"waits": frozenset({"wait_woken"})}, True, id="it waits for the network"),
        pytest.param({"main_cpu": 50.5, "cpu": 100.5}, False, id="its main thread computes"),
        pytest.param({"cpu": 100.5}, False, id="a child computes"),
        pytest.param({"states": frozenset("D")}, False, id="it waits for a disk"),
    ],
)
def test_idleness_is_measured_by_noticeable_work_alone(changes: dict[str, object], idle: bool) -> None:
    assert is_idle(BEFORE, replace(BEFORE, **changes), Interval(10.0)) is idle  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dumped", "expected"),
    [
        pytest.param(90_000, Motion.RESTS, id="they are those that it wrote on request"),
        pytest.param(89_000, Motion.STIRS, id="it wrote something else too"),
        pytest.param(None, Motion.BUSY, id="there was no request"),
    ],
)
def test_its_own_stacks_are_no_sign_of_life(dumped: int | None, expected: Motion) -> None:
    after = replace(BEFORE, bytes=1e6 + 90_000, main_bytes=5e5 + 90_000, main_cpu=50.005, cpu=100.01)
    assert motion(BEFORE, after, Interval(10.0, dumped)) is expected


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(started: list[subprocess.Popen[str]], code: str) -> int:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    started.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    return process.pid


def read(pid: int) -> TreeReading:
    return process_reader.with_traffic(process_reader.read_trees([pid])[pid])


def test_a_stopped_and_an_ended_process(started: list[subprocess.Popen[str]]) -> None:
    pid = start(started, SLEEP)
    assert not read(pid).stopped
    started[0].send_signal(signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    assert (read(pid).stopped, read(pid).gone) == (True, False)
    started[0].kill()
    started[0].wait()
    assert read(pid).gone


def test_a_process_that_computes_uses_its_main_thread(started: list[subprocess.Popen[str]]) -> None:
    pid = start(started, SPIN)
    before = read(pid)
    while read(pid).main_cpu < before.main_cpu + 0.1:
        pass


def test_a_process_that_sleeps_shows_no_sign_of_life(started: list[subprocess.Popen[str]]) -> None:
    pid = start(started, SLEEP)
    before = read(pid)
    while (after := read(pid)) != before:  # it may have printed a moment ago
        before = after
    assert motion(before, after, Interval(1.0)) is Motion.RESTS


def test_what_a_child_does_is_its_workers(started: list[subprocess.Popen[str]]) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}])"
    pid = start(started, code)
    before = read(pid)
    while read(pid).cpu < before.cpu + 0.1:
        pass
    assert len(read(pid).processes) == 2
    subprocess.run(["pkill", "-9", "-P", str(pid)], check=True)


TALKS = """
import socket, subprocess, sys
code = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1); s.recv(1)"
server = socket.create_server(("127.0.0.1", 0))
child = subprocess.Popen([sys.executable, "-c", code, str(server.getsockname()[1])])
link, _ = server.accept()
link.sendall(b"x")
other = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
other.sendall(b"12345")
print("ready", flush=True)
sys.stdin.readline()
link.sendall(b"x")
"""


def test_the_traffic_of_a_process_is_its_own_and_that_with_its_children_is_no_sign_of_progress() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-c", TALKS, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()
            tree = process_reader.read_trees([process.pid])[process.pid]
            reading, besides_store = process_reader.with_traffic(tree), process_reader.with_traffic(tree, port)
            assert reading.main_traffic is not None
            assert reading.traffic is not None
            assert [moved >= 5 for moved in reading.main_traffic.values()] == [True]
            assert len(reading.traffic) == 3, "both ends of the connection to the child, and the other one"
            assert besides_store.main_traffic == {}, "the round's store is no rank"
        finally:
            process.kill()
            process.communicate()
