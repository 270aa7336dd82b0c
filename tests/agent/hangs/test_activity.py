"""The activity of real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pytorchjob_agent.hangs.activity import ActivityMeter, Usage, network, usage

SPIN = "print('ready', flush=True)\nwhile True: pass"
SLEEP = "import time; print('ready', flush=True); time.sleep(600)"


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


@pytest.mark.parametrize(
    ("after", "busy"),
    [
        pytest.param(Usage(1.0, 0, frozenset("S")), False, id="nothing"),
        pytest.param(Usage(1.1, 0, frozenset("S")), False, id="a thread that wakes up now and then"),
        pytest.param(Usage(1.5, 0, frozenset("S")), True, id="it computes"),
        pytest.param(Usage(1.0, 1000, frozenset("S")), False, id="a line of log"),
        pytest.param(Usage(1.0, 1e6, frozenset("S")), True, id="it reads or writes"),
        pytest.param(Usage(1.0, 0, frozenset("SD")), True, id="it waits for a disk"),
        pytest.param(Usage(0.5, 0, frozenset("S")), True, id="a child has ended"),
    ],
)
def test_what_counts_as_doing_something_within_ten_seconds(after: Usage, busy: bool) -> None:
    assert after.busier(Usage(1.0, 0, frozenset("S")), 10.0) == busy


def test_the_states_of_a_worker(started: list[subprocess.Popen[str]]) -> None:
    pulses = ActivityMeter({0: start(started, SLEEP)})
    assert not pulses.take(0, 1.0).stopped
    started[0].send_signal(signal.SIGSTOP)
    os.waitpid(started[0].pid, os.WUNTRACED)
    pulse = pulses.take(0, 1000.0)
    assert (pulse.stopped, pulse.gone) == (True, False)
    started[0].kill()
    started[0].wait()
    assert pulses.take(0, 1001.0).gone


def test_one_that_computes_is_never_quiet(started: list[subprocess.Popen[str]]) -> None:
    pid = start(started, SPIN)
    pulses = ActivityMeter({0: pid})
    before = usage(pid)
    assert pulses.take(0, 1.0).quiet_for == 0
    while usage(pid).cpu < before.cpu + 0.1:
        pass
    assert pulses.take(0, 2.0).quiet_for == 0


def test_quiet_is_counted_from_the_first_look_and_from_anew(started: list[subprocess.Popen[str]]) -> None:
    pulses = ActivityMeter({0: start(started, SLEEP)})
    pulses.take(0, 0.0)
    pulses.take(0, 1e6)  # so long that no traffic of this machine matters
    assert pulses.take(0, 2e6).quiet_for == 2e6
    pulses.forget(0)
    assert pulses.take(0, 3e6).quiet_for == 0


def test_what_a_child_uses_is_its_workers(started: list[subprocess.Popen[str]]) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}])"
    pid = start(started, code)
    before = usage(pid)
    while usage(pid).cpu < before.cpu + 0.1:
        pass
    subprocess.run(["pkill", "-9", "-P", str(pid)], check=True)


def test_the_network_only_grows() -> None:
    before = network()
    assert network() >= before >= 0
