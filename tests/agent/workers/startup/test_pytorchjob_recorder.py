"""The record of a worker's collectives: what it keeps, and what its reader makes of a file of any content."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytorchjob_agent.stacks.recorders import Recorders
from pytorchjob_agent.workers.startup.pytorchjob_recorder import (
    LAST,
    MOST_GROUPS,
    RECORDER,
    SIZE,
    CollectiveRecorder,
    call,
    moves,
    read,
)


def args(name: str, *shapes: tuple[int, ...], root: int = 0) -> Any:
    """What torch gives to a hook."""
    tensors = [SimpleNamespace(dtype="torch.float32", shape=shape) for shape in shapes]
    return SimpleNamespace(name=SimpleNamespace(name=name), root=root, input_tensors=tensors)


@pytest.fixture
def records(tmp_path: Path) -> Recorders:
    return Recorders(tmp_path / "round", 2)


@pytest.fixture
def recorder(records: Recorders) -> CollectiveRecorder:
    return CollectiveRecorder(records.env(1)[RECORDER])


@pytest.mark.parametrize(
    ("name", "shapes", "words"),
    [
        ("ALLREDUCE", [(3, 4)], "all_reduce float32[3,4]"),
        ("ALLREDUCE_COALESCED", [(3,), (4,), (5,)], "all_reduce_coalesced float32[3] float32[4] and 1 more"),
        ("BROADCAST", [(3,)], "broadcast root=2 float32[3]"),
        ("GATHER", [(3,)], "gather root=2"),
        ("ALLGATHER", [(3,)], "all_gather"),
        ("BARRIER", [], "barrier"),
        ("NEW_ONE", [(3,)], "new_one"),
    ],
)
def test_only_what_all_ranks_must_call_equally_is_kept(name: str, shapes: list[tuple[int, ...]], words: str) -> None:
    """The ranks of a gather, for example, may have tensors of different sizes."""
    assert call(name, args(name, *shapes, root=2)) == words


def test_the_agent_reads_how_far_a_worker_is_in_each_group(records: Recorders, recorder: CollectiveRecorder) -> None:
    first, second = recorder.add("0 (default_pg)"), recorder.add("1")
    assert first is not None
    assert second is not None
    recorder.begin(first, args("ALLREDUCE", (3,)))
    recorder.begin(second, args("SEND", (3,)))
    recorder.begin(second, args("BARRIER"))
    recorder.step()
    found = records.positions(4, 2**62)
    assert [(each.rank, each.group, each.begun, each.latest, each.recent) for each in found] == [
        (5, "1", 1, True, ("barrier",)),
        (5, "0 (default_pg)", 1, False, ("all_reduce float32[3]",)),
    ]
    assert [records.moves(local_rank) for local_rank in (0, 1)] == [(0, 0), (1, 2)]


def test_the_last_collectives_are_kept_and_all_are_counted(records: Recorders, recorder: CollectiveRecorder) -> None:
    group = recorder.add("0")
    assert group is not None
    for number in range(1, 2 * LAST + 8):
        recorder.begin(group, args("ALLREDUCE", (number,)))
    [found] = read(Path(records.env(1)[RECORDER]).read_bytes())
    assert found.begun == 2 * LAST + 7
    assert len(found.calls) == LAST
    assert found.calls[-1] == f"all_reduce float32[{2 * LAST + 7}]"
    assert len(records.positions(0, 2**62)[0].recent) == 16


def test_a_group_that_is_made_again_is_another_one(records: Recorders, recorder: CollectiveRecorder) -> None:
    for _ in range(MOST_GROUPS):
        recorder.add("0")
    assert recorder.add("0") is None, "there is no place for more groups"
    names = [group.name for group in read(Path(records.env(1)[RECORDER]).read_bytes())]
    assert names[:3] == ["0", "0 #2", "0 #3"]


def test_the_first_process_of_a_worker_records(records: Recorders, recorder: CollectiveRecorder) -> None:
    """A child of the worker, which has its variables, has groups of its own."""
    path = Path(records.env(1)[RECORDER])
    path.write_bytes((1).to_bytes(8, "little") + path.read_bytes()[8:])
    assert recorder.ours
    assert not CollectiveRecorder(str(path)).ours


@given(st.binary(max_size=300))
def test_a_broken_file_shows_nothing(data: bytes) -> None:
    assert read(data) == []
    assert moves(data[:20]) == (0, 0)
    found = read(data.ljust(SIZE, b"\0"))
    assert all(isinstance(group.name, str) for group in found)


def test_without_files_nothing_is_known(records: Recorders) -> None:
    records.close()
    assert records.positions(0, 1) == ()
    assert records.moves(0) == (0, 0)
