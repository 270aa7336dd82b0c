"""Waiting for descriptors of any number: `select` knows the first 1,024 only."""

import os
import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytorchjob_agent.rendezvous.coordinator_client import _await
from pytorchjob_agent.rendezvous.wakeup import Wakeup
from pytorchjob_agent.system.alarm import Alarm
from pytorchjob_agent.system.readable import wait_readable

_MANY = 1100
_CODE = Path(__file__).parents[3] / "operator"


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """A process as it is beside 200 workers: all descriptors below 1,100 are taken."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], min(4 * _MANY, before[1])), before[1]))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] < _MANY:
        taken.append(os.dup(taken[0]))
    yield
    for fd in taken:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_open_files")
def test_the_loop_sleeps_with_descriptors_above_1023() -> None:
    wakeup = Wakeup()
    wakeup.sleep(0.0)
    wakeup.wake()
    wakeup.sleep(60)


@pytest.mark.usefixtures("many_open_files")
def test_the_coordinator_client_waits_with_descriptors_above_1023() -> None:
    alarm = Alarm()
    ours, theirs = socket.socketpair()
    assert not _await(alarm, 0.0, ours)
    theirs.send(b"x")
    assert _await(alarm, 60, ours)
    for file in (alarm, ours, theirs):
        file.close()


def test_what_can_be_read_is_returned_and_nothing_else() -> None:
    (first, write), (second, other) = os.pipe(), os.pipe()
    assert wait_readable([first, second], 0.0) == []
    os.write(other, b"x")
    assert wait_readable([first, second], None) == [second]
    os.close(write)
    assert wait_readable([first, second], 60) == [first, second], "the end of a pipe can be read"
    for fd in (first, second, other):
        os.close(fd)


def test_a_closed_file_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    theirs.close()
    with pytest.raises(ValueError, match="negative"):
        wait_readable([ours], 0.0)


def test_nothing_waits_with_select() -> None:
    assert [str(path) for path in _CODE.rglob("*.py") if re.search(r"select\.select\(\[", path.read_text())] == []
