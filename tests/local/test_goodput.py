"""A scripted life of real processes against an outside clock: they start, train, save, are killed, load, repeat, end.

The script writes what it does with its time. Its steps have their ages in each heartbeat, so no class waits for one.
"""

import json
import re
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.local.jobs import Run, job, role
from tests.local.torch_beside import write_torch
from tests.waiting import again

LIFE = """
import json, os, signal, time
import torch
from pytorchjob_agent import progress

rank = int(os.environ["RANK"])
saved, life = f"saved-{rank}", open(f"life-{rank}", "a", buffering=1)

def wrote(what, step):
    life.write(json.dumps([what, step, time.time()]) + "\\n")

again = os.path.exists(saved)
wrote("starts", 0)
first = torch.load(saved) if again else 0
wrote("loaded", first)
for step in range(first + 1, 61):
    if rank == 1 and step == 39 and not again:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    progress(step, total=60)
    wrote("step", step)
    if step % 10 == 0:
        torch.save(step, "new" + saved)
        os.replace("new" + saved, saved)
        wrote("saved", step)
"""
REACHED, SAVED, STEPS = 38, 30, 60
"""The step before the kill, the step that was saved last, and all steps."""


def write(directory: Path, life: str = LIFE) -> None:
    """Write the script, and what it imports."""
    (directory / "life.py").write_text(life)
    write_torch(directory, save=1, load=1)


def times_of(path: Path) -> list[tuple[str, int, float]]:
    """What a life did, in its order, and how long each took."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(what, step, at - before) for (_, _, before), (what, step, at) in pairwise(lines)]


def clock(directory: Path) -> float:
    """The time of the machine, in seconds since 1970."""
    file = directory / "clock"
    file.touch()
    return file.stat().st_mtime


@pytest.mark.torch
def test_the_ledger_of_a_life_agrees_with_the_clock_of_its_script(start: Callable[..., Run], tmp_path: Path) -> None:
    """A process that stood still between an event and its time has spoilt a life."""
    write(tmp_path)
    again(lambda number: agrees(start, tmp_path))


def agrees(start: Callable[..., Run], tmp_path: Path) -> None:
    """Run a life, and compare its ledger with what the script wrote."""
    for left in (*tmp_path.glob("life-*"), *tmp_path.glob("saved-*")):
        left.unlink()
    began = clock(tmp_path)
    run = start(job(Worker=role(["pytorchjob-agent", "run", "--", "life.py"], 2, "OnFailure")), "--output", "json")
    assert run.wait() == 0, run.out + run.err
    ended = clock(tmp_path)

    status = json.loads(run.out)["status"]
    ledger = status["goodput"]
    seconds = ledger["seconds"]
    assert (ledger["furthestStep"], ledger["interruptions"]) == (STEPS, 1)

    lines = [json.loads(line) for line in (tmp_path / "life-1").read_text().splitlines()]
    seen = lines[-1][2] - lines[0][2]
    assert seen <= sum(seconds.values()) <= ended - began + 0.1

    times = times_of(tmp_path / "life-1")
    steps = [(step, spent) for what, step, spent in times if what == "step"]
    again = [step for step, _ in steps].index(SAVED + 1, REACHED)
    repeated = sum(spent for step, spent in steps[again + 1 :] if step <= REACHED)
    new = sum(spent for step, spent in [*steps[1:again], *steps[again + 1 :]]) - repeated
    saves = [spent for what, _, spent in times if what == "saved"]
    loads = sum(spent for what, step, spent in times if what == "loaded" and step)
    assert seconds["running"] == pytest.approx(new, rel=0.05)
    assert seconds["wastedProgressFromDisruption"] == pytest.approx(repeated, abs=0.3)
    assert seconds["unproductiveCheckpointSaveTime"] == pytest.approx(sum(saves), rel=0.05)
    assert seconds["unproductiveCheckpointRestoreTime"] == pytest.approx(loads, rel=0.05)
    assert seconds["programStartup"] >= steps[0][1] + steps[again][1] - 0.1
    assert (ledger["saves"], ledger["savedSteps"], ledger["crashes"]) == (len(saves), STEPS, 1)
    assert seconds["detection"] > 0.0
    assert re.search(r"^  \d+\.\d % running; .* to saves, .* to replayed steps", run.err, re.MULTILINE), run.err
    assert re.search(r"Saving every \d+ steps instead of 10 would have given \d+(\.\d)? %\.$", run.err, re.MULTILINE)


@pytest.mark.torch
def test_saves_are_not_measured_where_progress_is_not_observed(start: Callable[..., Run], tmp_path: Path) -> None:
    write(tmp_path, LIFE.replace("range(first + 1, 61)", "range(first + 1, 12)"))
    quiet = job(Worker=role(["pytorchjob-agent", "run", "--", "life.py"]))
    quiet["spec"]["agent"] = {"observeProgress": False}
    run = start(quiet, "--output", "json")
    assert run.wait() == 0, run.out + run.err
    ledger = json.loads(run.out)["status"]["goodput"]
    assert (ledger["furthestStep"], ledger.get("saves")) == (11, None)
    assert "unproductiveCheckpointSaveTime" not in ledger["seconds"]


@pytest.mark.parametrize(
    ("command", "status"),
    [
        pytest.param(["python", "-c", "import time; time.sleep(2)"], 0, id="succeeds without steps"),
        pytest.param(["python", "-c", "import no_such_module"], 1, id="dies at import"),
        pytest.param(["no-such-program"], 1, id="has no program"),
    ],
)
def test_no_percentage_is_shown_for_a_job_that(start: Callable[..., Run], command: list[str], status: int) -> None:
    run = start(job(Master=role(command, policy="OnFailure")))
    assert run.wait() == status, run.out + run.err
    assert "% running" not in run.err


@pytest.mark.torch
def test_a_job_that_is_stopped_has_its_sentence_too(start: Callable[..., Run], tmp_path: Path) -> None:
    write(tmp_path, LIFE.replace("range(first + 1, 61)", "range(first + 1, 6001)"))
    run = start(job(Worker=role(["pytorchjob-agent", "run", "--", "life.py"])))
    run.until("Training, step ")
    run.signal(signal.SIGTERM)
    assert run.wait() == 143, run.out + run.err
    assert re.search(r"^  \d+\.\d % running", run.err, re.MULTILINE), run.err
