"""The files of one round: files that workers find by their environment."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pytorchjob_agent.script.agent_side import ProgressFiles, WorkerProgress
from pytorchjob_agent.script.progress_file import PROGRESS, RequestKind

ROOT = Path(__file__).parents[3]
WORKER = """
from pytorchjob_agent import checkpoint_requested, progress, should_stop
progress(1, total=9, loss=0.5)
print(checkpoint_requested(), checkpoint_requested(), should_stop())
"""


def worker(files: ProgressFiles, code: str, local_rank: int = 0) -> str:
    """What a real process prints that has this environment."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), **files.env(local_rank)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_each_worker_has_its_own(tmp_path: Path) -> None:
    files = ProgressFiles(tmp_path / "round-1", 3)
    assert len({files.env(local_rank)[PROGRESS] for local_rank in range(3)}) == 3
    assert files.read() == tuple(WorkerProgress(local_rank) for local_rank in range(3))
    assert not any(file.cooperative for file in files.read())
    files.close()
    assert list((tmp_path / "round-1").iterdir()) == []


def test_a_process_reports_and_answers(tmp_path: Path) -> None:
    files = ProgressFiles(tmp_path, 2)
    assert files.request(RequestKind.CHECKPOINT, seconds=30) == 1
    assert worker(files, WORKER, 1) == "True False False"
    silent, said = files.read()
    assert not silent.cooperative
    assert (said.step, said.total, dict(said.metrics), said.answered) == (1, 9, {"loss": 0.5}, 1)
    assert said.cooperative
    assert said.asks_checkpoint
    assert said.age is not None
    assert 0 <= said.age < 60
    files.close()


def test_whom_it_is_worth_waiting_for() -> None:
    nobody, saver = WorkerProgress(0, reports=True), WorkerProgress(0, asks_checkpoint=True, answered=2)
    stopper = WorkerProgress(0, asks_stop=True, answered=9, left=3)
    waits = {
        "who never asks": nobody.owes(3, RequestKind.CHECKPOINT),
        "who has not saved": saver.owes(3, RequestKind.CHECKPOINT),
        "who has saved": saver.owes(2, RequestKind.CHECKPOINT),
        "who ends by itself": stopper.owes(4, RequestKind.STOP),
        "who ends, but for the interpreter": stopper.owes(3, RequestKind.STOP),
        "who saves and does not end": saver.owes(3, RequestKind.STOP),
        "who saved and does not end": saver.owes(2, RequestKind.STOP),
    }
    expected = {
        "who never asks": False,
        "who has not saved": True,
        "who has saved": False,
        "who ends by itself": True,
        "who ends, but for the interpreter": False,
        "who saves and does not end": True,
        "who saved and does not end": False,
    }
    assert waits == expected


def test_requests_are_numbered_on_or_as_the_group_says(tmp_path: Path) -> None:
    files = ProgressFiles(tmp_path, 1)
    assert [
        files.request(RequestKind.CHECKPOINT),
        files.request(RequestKind.CHECKPOINT, 7),
        files.request(RequestKind.STOP),
    ] == [1, 7, 8]
    assert files.request(RequestKind.STOP, 3) == 8
    files.close()


def test_a_round_knows_nothing_of_the_last(tmp_path: Path) -> None:
    before = ProgressFiles(tmp_path / "1", 1)
    before.request(RequestKind.STOP)
    after = ProgressFiles(tmp_path / "2", 1)
    assert worker(after, WORKER) == "False False False"
    before.close()
    after.close()


def test_a_worker_that_outlives_its_round_goes_on(tmp_path: Path) -> None:
    files = ProgressFiles(tmp_path, 1)
    code = (
        "import os; from pytorchjob_agent import progress; progress(1);"
        " os.unlink(os.environ['PYTORCHJOB_PROGRESS']); progress(2); print('fine')"
    )
    assert worker(files, code) == "fine"
    files.close()


def test_files_may_be_removed_while_another_thread_reads_them(tmp_path: Path) -> None:
    files, read = ProgressFiles(tmp_path / "round", 64), threading.Event()
    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(_read_all, files, read)
        assert read.wait(30)
        files.close()
        assert reading.result(30) == ()


def _read_all(files: ProgressFiles, read: threading.Event) -> tuple[WorkerProgress, ...]:
    """Read until nothing is left."""
    while said := files.read():
        read.set()
    return said
