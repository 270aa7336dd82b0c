"""What an agent reports of its workers' saves: the longest of its ranks, and nothing that is not known."""

from pathlib import Path
from struct import pack
from typing import Any

import pytest

from pytorchjob_agent.observers.observed_saves import ObservedSaves, WorkerSaves
from pytorchjob_agent.script.agent_side import ProgressFiles
from pytorchjob_agent.script.progress_file import PROGRESS, SAVES_AT

FORMAT = "=qqdqdq"


def reports(directory: Path, *workers: tuple[Any, ...], step: int | None = None) -> dict[str, Any]:
    """The fields of a heartbeat, for the words of each worker: saves, seconds, step, seconds of loads, elsewhere."""
    files = ProgressFiles(directory, len(workers))
    for local_rank, words in enumerate(workers):
        with Path(files.env(local_rank)[PROGRESS]).open("r+b") as file:
            file.seek(SAVES_AT)
            file.write(pack(FORMAT, 1, *words))
    found = ObservedSaves(files).report(step)
    files.close()
    return found


@pytest.mark.parametrize(
    ("workers", "step", "expected"),
    [
        pytest.param(
            ((3, 1.5, 20, 0.5, 0), (0, 0.0, -1, 2.0, 0)),
            25,
            {"saves": 3, "save_seconds": 1.5, "saved_step": 20, "load_seconds": 2.0},
            id="rank 0 saves, and another rank loads for longer",
        ),
        pytest.param(
            ((3, 1.5, -1, 0.0, 0),),
            25,
            {"saves": 3, "save_seconds": 1.5, "saved_step": 25, "load_seconds": 0.0},
            id="a worker that reports no steps saved at the step that the agent observes",
        ),
        pytest.param(
            ((0, 0.0, 0, 0.0, 0), (0, 0.0, 0, 0.0, 1)),
            5,
            {"saves": None, "save_seconds": 0.0, "saved_step": None, "load_seconds": 0.0},
            id="a save that is not measured may be one of many",
        ),
        pytest.param(
            ((0, 0.0, 0, 0.0, 0),),
            None,
            {"saves": 0, "save_seconds": 0.0, "saved_step": None, "load_seconds": 0.0},
            id="a script that saves nothing",
        ),
    ],
)
def test_reports(tmp_path: Path, workers: tuple[Any, ...], step: int | None, expected: dict[str, Any]) -> None:
    assert reports(tmp_path, *workers, step=step) == expected


def test_workers_that_measure_nothing_are_not_reported(tmp_path: Path) -> None:
    files = ProgressFiles(tmp_path, 2)
    assert ObservedSaves(files).report(7) == {}
    files.close()
    assert ObservedSaves(files).report(7) == {}


def test_loads_after_the_first_step_do_not_count(tmp_path: Path) -> None:
    files = ProgressFiles(tmp_path, 1)
    saves = ObservedSaves(files)
    found = []
    for step, seconds in ((None, 1.0), (None, 2.0), (1, 2.5), (2, 9.0)):
        with Path(files.env(0)[PROGRESS]).open("r+b") as file:
            file.seek(SAVES_AT)
            file.write(pack(FORMAT, 1, 0, 0.0, 0, seconds, 0))
        found.append(saves.report(step)["load_seconds"])
    files.close()
    assert found == [1.0, 2.0, 2.5, 2.5]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(b"", id="no words"),
        pytest.param(pack(FORMAT, 0, 1, 1.0, 0, 0.0, 0), id="no process"),
        pytest.param(pack(FORMAT, 1, -1, 1.0, 0, 0.0, 0), id="less than no save"),
        pytest.param(pack(FORMAT, 1, 1, float("nan"), 0, 0.0, 0), id="no number of seconds"),
        pytest.param(pack(FORMAT, 1, 1, 1.0, 0, -1.0, 0), id="a negative time"),
    ],
)
def test_damaged_words_are_not_read(words: bytes) -> None:
    assert WorkerSaves.read(words) is None
