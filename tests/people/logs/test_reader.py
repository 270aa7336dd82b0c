"""The reader delivers all lines of one log once and in order, whatever breaks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytorchjob.cluster.api import Cluster, LogRequest
from pytorchjob.cluster.errors import ApiServerUnreachable, Rejected
from pytorchjob.logs.containers import LogPhase, LogState
from pytorchjob.logs.lines import Line
from pytorchjob.logs.reader import ContainerPlace, Reader
from pytorchjob.logs.resume import Resume
from tests.people.logs.simulated_node import SimulatedNode

PLACE = ContainerPlace("team", "digits-worker-0", "uid-1", "pytorch")
ACTIONS = st.lists(st.sampled_from(["print", "print", "print", "restart", "rotate"]), max_size=30)
SEEDS = st.integers(0, 1 << 32)


def reader(node: SimulatedNode, tail: int | None = None) -> Reader:
    return Reader(cast(Cluster, node), PLACE, node, Resume(), tail)


def is_part(few: list[bytes], many: list[bytes]) -> bool:
    """True if `few` is what is left of `many` after some are taken out."""
    rest = iter(many)
    return all(line in rest for line in few)


def check_all(seed: int, actions: list[str]) -> None:
    node = SimulatedNode(seed, actions)
    reader(node).follow()
    assert node.emitted == node.printed


def check_lossy(seed: int, actions: list[str]) -> None:
    node = SimulatedNode(seed, actions, harmless=False)
    reader(node).follow()
    assert is_part(node.emitted, node.printed)


def check_tail(seed: int, actions: list[str], tail: int) -> None:
    node = SimulatedNode(seed, actions, distinct=True)
    reader(node, tail).follow()
    assert node.emitted == node.printed[len(node.printed) - len(node.emitted) :]


@settings(max_examples=300, deadline=None)
@given(SEEDS, ACTIONS)
def test_no_line_is_lost_and_none_comes_twice(seed: int, actions: list[str]) -> None:
    check_all(seed, actions)


@settings(max_examples=200, deadline=None)
@given(SEEDS, ACTIONS)
def test_if_the_node_removes_lines_the_others_come_once(seed: int, actions: list[str]) -> None:
    check_lossy(seed, actions)


@settings(max_examples=200, deadline=None)
@given(SEEDS, ACTIONS, st.integers(0, 5))
@example(994, ["restart", "rotate", "print", "print", "print", "restart", "restart", "restart", "restart"], 0)
def test_after_the_last_lines_all_later_ones_come(seed: int, actions: list[str], tail: int) -> None:
    check_tail(seed, actions, tail)


@pytest.mark.long
@pytest.mark.timeout(600)
@settings(max_examples=5000, deadline=None)
@given(SEEDS, ACTIONS, st.integers(0, 5))
def test_all_of_that_many_times(seed: int, actions: list[str], tail: int) -> None:
    check_all(seed, actions)
    check_lossy(seed, actions)
    check_tail(seed, actions, tail)


class Streams:
    """A node that gives these streams in order and repeats the last. It has no previous log."""

    namespace = "team"

    def __init__(self, *streams: list[bytes | Exception], uid: str = "uid-1") -> None:
        self._streams, self._uid = list(streams), uid
        self.read_lines: list[bytes] = []
        self.notes: list[str] = []
        self._states = [LogState(LogPhase.OPEN, begun=True)] * len(streams)

    @contextmanager
    def log(self, request: LogRequest) -> Iterator[Iterator[bytes]]:
        if request.previous:
            raise Rejected("previous terminated container not found")
        yield self._lines(self._streams.pop(0) if len(self._streams) > 1 else self._streams[0])

    def _lines(self, stream: list[bytes | Exception]) -> Iterator[bytes]:
        for line in stream:
            if isinstance(line, Exception):
                raise line
            yield line

    def read(self, path: str) -> dict[str, Any] | None:
        assert path == "/api/v1/namespaces/team/pods/digits-worker-0"
        return {"metadata": {"uid": self._uid}} if self._uid else None

    def state(self) -> LogState:
        return self._states.pop(0) if self._states else LogState(LogPhase.ENDED, begun=True)

    def emit(self, line: Line) -> None:
        self.read_lines.append(line.text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def is_current(self, current: bool) -> None:
        pass

    def idle(self) -> None:
        pass

    def pause(self, seconds: float) -> None:
        pass


def stamped(second: int, text: str = "line") -> bytes:
    return f"2026-01-02T03:04:0{second}.5Z {text} {second}\n".encode()


LOST = ApiServerUnreachable("connection lost")
FOREIGN = [b"failed to watch file: too many open files\n", stamped(1)]


@pytest.mark.parametrize(
    ("node", "lines", "note"),
    [
        pytest.param(Streams([stamped(1), LOST], [stamped(1), stamped(2)]), [1, 2], "", id="a lost connection"),
        pytest.param(
            Streams([stamped(1), LOST], [stamped(5)]),
            [1, 5],
            "lines before 2026-01-02T03:04:05.5Z may be missing: the node does not have them any more",
            id="a rotation meanwhile",
        ),
        pytest.param(
            Streams([stamped(1), LOST], []),
            [1],
            "its last lines may be missing: the node does not have them any more",
            id="a rotation before the end",
        ),
        pytest.param(
            Streams(FOREIGN), [1], "failed to watch file: too many open files", id="a message of the node itself"
        ),
        pytest.param(
            Streams([stamped(1)], uid="uid-2"),
            [],
            "its log cannot be read: the pod was removed, or you may not get pods",
            id="another pod of this name",
        ),
        pytest.param(
            Streams([stamped(1)], uid=""),
            [],
            "its log cannot be read: the pod was removed, or you may not get pods",
            id="no pod of this name",
        ),
        pytest.param(
            Streams([Rejected("no such container")]),
            [],
            "its log cannot be read: no such container",
            id="a log that the node refuses",
        ),
    ],
)
def test_what_may_be_missing_is_reported(node: Streams, lines: list[int], note: str) -> None:
    Reader(cast(Cluster, node), PLACE, node, Resume()).follow()
    assert node.read_lines == [f"line {second}".encode() for second in lines]
    assert node.notes == ([note] if note else [])
