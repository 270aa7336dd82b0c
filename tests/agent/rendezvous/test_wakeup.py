"""The loop's alarm clock: what it watches it is woken by, and what it cannot watch has to be looked at."""

import os
import subprocess
import sys

import pytest

from pytorchjob_agent.rendezvous.wakeup import Wakeup


@pytest.fixture
def process() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def test_the_end_of_a_process_ends_the_sleep(process: "subprocess.Popen[bytes]") -> None:
    clock = Wakeup()
    clock.watch([process.pid])
    assert (clock.watches, clock.age()) == (True, 0.0)
    process.communicate(b"\n")
    clock.sleep(60)
    assert not clock.watches
    assert clock.age() > 0.0
    clock.watch([os.getpid()])
    assert clock.age() == 0.0


def test_one_that_ended_before_is_looked_for(process: "subprocess.Popen[bytes]") -> None:
    process.communicate(b"\n")  # it is collected, so that its pid is nobody's
    clock = Wakeup()
    clock.watch([os.getpid(), process.pid])
    assert not clock.watches


def test_what_cannot_be_watched_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        if pid != os.getpid():
            raise OSError(f"no descriptor for {pid}")
        return os.dup(0)

    monkeypatch.setattr(os, "pidfd_open", refuse)
    clock = Wakeup()
    clock.watch([os.getpid(), 1])
    assert not clock.watches
