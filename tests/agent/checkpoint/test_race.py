"""Groups of several rounds save at the same time in one directory, from many processes."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROCESS = """
import sys, time
from pathlib import Path
from pytorchjob_agent import FencedError, load, save
path, log = Path(sys.argv[1]), Path(sys.argv[2])
events = []
try:
    load(path, Path.read_text)
    events.append(("took over", time.monotonic()))
    for number in range(60):
        began = time.monotonic()
        save(path, lambda new: new.write_text(sys.argv[3]))
        events.append(("saved", began))
    events.append(("went on", 0.0))
except FencedError:
    events.append(("fenced", 0.0))
log.write_text(repr(events))
"""
ROUNDS = ("3.7", "3.7.1", "3.8", "4.1")


def test_no_save_that_begins_after_a_later_round_has_taken_over_has_an_effect(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    processes = []
    for number in range(2 * len(ROUNDS)):
        round_ = ROUNDS[number // 2]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "PYTORCHJOB_JOB": "a", "PYTORCHJOB_ROUND_ID": round_}
        argv = [sys.executable, "-c", PROCESS, str(folder / "checkpoint"), str(tmp_path / f"{number}.log"), round_]
        processes.append(subprocess.Popen(argv, env=env))
    assert [process.wait(100) for process in processes] == [0] * len(processes)
    logs = [eval((tmp_path / f"{number}.log").read_text()) for number in range(len(processes))]
    for number, events in enumerate(logs):
        later = [each for other in logs[2 * (number // 2) + 2 :] for each in other]
        taken = min((at for what, at in later if what == "took over"), default=float("inf"))
        saves = [at for what, at in events if what == "saved"]
        assert not [at for at in saves if at > taken], f"round {ROUNDS[number // 2]} saved after a later one took over"
    assert all(events[-1][0] == "went on" for events in logs[-2:]), "nothing stops the last round"
    assert (folder / "checkpoint").read_text() == ROUNDS[-1]
    assert [entry.name for entry in folder.iterdir() if entry.name != ".pytorchjob-fence"] == ["checkpoint"]
