"""The agent's side of the files in which workers write their own time."""

import struct
from pathlib import Path

import pytest

from pytorchjob_agent.rendezvous.extension import OwnPod
from pytorchjob_agent.stragglers.own_times import STRAGGLERS, OwnTimes, RoundOwnTimes
from pytorchjob_agent.workers.startup.pytorchjob_collectives import OWN_TIME, SIZE


def write(times: OwnTimes, local_rank: int, *words: int) -> None:
    Path(times.env(local_rank)[OWN_TIME]).write_bytes(struct.pack(f"{len(words)}q", *words).ljust(SIZE, b"\0"))


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        pytest.param([(1, 2, 750, 1000)], {"own_windows": (1,), "own_shares": (750,)}, id="one window"),
        pytest.param(
            [(1, 2, 750, 1000), (2, 6, 10, 1000)],
            {"own_windows": (1, 3), "own_shares": (750, 10)},
            id="two workers",
        ),
        pytest.param([(1, 2, 750, 1000), (2, 0, 0, 0)], {}, id="a worker that has no window yet"),
        pytest.param([(1, 3, 750, 1000)], {}, id="a worker that writes just now"),
        pytest.param([(1, 2, 2000, 1000)], {"own_windows": (1,), "own_shares": (1000,)}, id="more than all"),
        pytest.param([(1, 2, -5, 1000)], {"own_windows": (1,), "own_shares": (0,)}, id="less than nothing"),
        pytest.param([(1, -2, 750, 1000)], {}, id="a damaged file"),
        pytest.param([(1, 2, 750, 0)], {}, id="a window without time"),
    ],
)
def test_the_share_of_each_worker_is_reported(
    tmp_path: Path, words: list[tuple[int, ...]], reported: dict[str, tuple[int, ...]]
) -> None:
    times = OwnTimes(tmp_path, len(words))
    for local_rank, numbers in enumerate(words):
        write(times, local_rank, *numbers)
    assert times.report() == reported


def test_a_file_that_is_gone_reports_nothing(tmp_path: Path) -> None:
    times = OwnTimes(tmp_path, 1)
    Path(times.env(0)[OWN_TIME]).unlink()
    assert times.report() == {}


@pytest.mark.parametrize(("value", "expected"), [(None, True), ("1", True), ("0", False)])
def test_the_pods_environment_decides(value: str | None, expected: bool) -> None:
    env = {} if value is None else {"PYTORCHJOB_FIND_STRAGGLERS": value}
    assert isinstance(STRAGGLERS.create(OwnPod(env, "job", "127.0.0.1", 1)), RoundOwnTimes) is expected
