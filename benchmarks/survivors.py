"""`python -m benchmarks.survivors kills|operations|cost|table`: workers that go on without a lost one.

Real agents, workers and a real coordinator on this machine, without a cluster. A kill is SIGKILL of a random worker but
rank 0's, at a random moment. What counts is the longest step of each survivor, with the end of that process in it:
"""

import json
import os
import platform
import random
import re
import select
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click

from pytorchjob_agent.contract.reasons import ShrinkState, TrainingReason
from pytorchjob_operator.rounds.values import Policy
from tests.agent.rendezvous.conftest import Job, Pod, led
from tests.torch.survivors import BEFORE, BEHIND, INSIDE, Loss, Run, play, train
from tests.torch.test_survivors import SIZE, check
from tests.waiting import until

OUT = Path(__file__).with_suffix(".jsonl")
SCRIPT = Path(__file__).with_name("surviving_script.py")
README = Path(__file__).with_name("survivors.md")
MARKS = "<!-- begin: survivors.jsonl, written by python -m benchmarks.survivors table -->", "<!-- end -->"
_STEP = re.compile(r"step (\d+) of (\d+) took ([\d.]+) ms")
_MILLION = {1: (256, 16, 64), 25: (1024, 24, 16), 100: (2048, 24, 16)}
"""Width, depth and batch of a model with so many million parameters."""


@click.group()
def cli() -> None:
    """Measure how long training stands still when a worker is killed."""


@contextmanager
def _job(size: int, survive: bool, env: Mapping[str, str]) -> Iterator[tuple[Job, list[Pod], Path]]:
    with tempfile.TemporaryDirectory() as name, led(Path(name)) as job:
        job.policy = Policy(1, size, survive=survive, early_errors=1_000_000)  # kills follow each other quickly
        job.expect(*range(size))
        given = {"PET_NNODES": f"1:{size}", "FOLDER": name, "STEPS": "1000000", "PYTORCHJOB_START_MODE": "warm", **env}
        if survive:
            given["PYTORCHJOB_SURVIVE"] = "auto"
        command = (sys.executable, "-m", "pytorchjob_agent", "run", "--", str(SCRIPT))
        pods = [job.start(index, command=command, **given) for index in range(size)]
        yield job, pods, Path(name)


def _steps(pod: Pod) -> list[tuple[int, int, float]]:
    return [(int(step), int(size), float(took)) for step, size, took in _STEP.findall(pod.text())]


@cli.command()
@click.option("--size", default=3, show_default=True, help="Workers, one in each pod.")
@click.option("--kills", default=200, show_default=True, help="How many kills shall be on record for this size.")
@click.option("--million", default=1, show_default=True, type=click.Choice([*map(str, _MILLION)]))
def kills(size: int, kills: int, million: str) -> None:
    """Kill a worker again and again; it comes back at a save each time."""
    width, depth, batch = _MILLION[int(million)]
    env = {"WIDTH": str(width), "DEPTH": str(depth), "BATCH": str(batch)}
    kept = [each for each in _load() if (each["what"], each["size"], each["million"]) == ("kill", size, int(million))]
    with _job(size, True, env) as (job, pods, folder):
        for number in range(len(kept), kills):
            until(lambda: job.report().survive is ShrinkState.READY, 60)
            time.sleep(random.uniform(0.1, 0.9))
            found = _kill(job, pods, random.randrange(1, size))
            _keep({"what": "kill", "size": size, "million": int(million), **found})
            click.echo(f"{number + 1} of {kills}: {found}")
            round_ = job.report().round
            (folder / "save").touch()
            until(lambda known=round_: job.report().round != known, 60)
        (folder / "stop").touch()


def _kill(job: Job, pods: Sequence[Pod], lost: int) -> dict[str, Any]:
    """Kill a worker; return how long the others stood still, and what they did again."""
    others = [pod for pod in pods if pod.index != lost]
    for pod in pods:
        pod.forget()
    until(lambda: all(len(_steps(pod)) > 20 for pod in others), 60)
    pid = [int(pid) for pid in re.findall(r"pid (\d+)", pods[lost].output.read_text())][-1]
    opened = os.pidfd_open(pid)
    events, began = len(job.events), time.monotonic()
    os.kill(pid, signal.SIGKILL)
    select.select([opened], [], [])
    ended = time.monotonic() - began
    os.close(opened)
    smaller = len(others)
    until(lambda: all(sum(size == smaller for _, size, _ in _steps(pod)) > 20 for pod in others), 60)
    steps = [_steps(pod) for pod in others]
    numbers = [[step for step, _, _ in each] for each in steps]
    return {
        "lost": lost,
        "longest": [max(took for _, _, took in each) for each in steps],
        "median": statistics.median(took for each in steps for _, _, took in each),
        "process_end": 1000 * ended,
        "repeated": sum(len(each) - len(set(each)) for each in numbers),
        "restarted": sum(event.reason is TrainingReason.ROUND_STARTED for event in job.events[events:]),
    }


@cli.command()
@click.option("--million", default="1", show_default=True, type=click.Choice([*map(str, _MILLION)]))
@click.option("--seconds", default=20.0, show_default=True, help="How long each turn measures.")
@click.option("--turns", default=5, show_default=True)
def cost(million: str, seconds: float, turns: int) -> None:
    """Steps with the field and without it, in turns."""
    width, depth, batch = _MILLION[int(million)]
    env = {"WIDTH": str(width), "DEPTH": str(depth), "BATCH": str(batch)}
    for turn in range(turns):
        found = {}
        for survive in (True, False) if turn % 2 else (False, True):
            with _job(3, survive, env) as (_, pods, folder):
                until(lambda pods=pods: all(len(_steps(pod)) > 5 for pod in pods), 120)
                for pod in pods:
                    pod.forget()
                time.sleep(seconds)
                (folder / "stop").touch()
                found["with" if survive else "without"] = statistics.median(
                    took for pod in pods for _, _, took in _steps(pod)
                )
        _keep({"what": "cost", "size": 3, "million": int(million), **found})
        click.echo(f"{million} million: {found}, ratio {found['with'] / found['without']:.3f}")


_SAVING = partial(train, steps=32, save_every=5)


@cli.command()
@click.option("--operations", default=60, show_default=True, help="How many of the first operations lose a rank.")
def operations(operations: int) -> None:
    """Kill each of three ranks in each operation: before it, inside it and behind it; compare with a reference.

    The reference is the same training in one process, with the batches of those that took part in each step.
    """
    known = {(each["operation"], each["lost"], each["moment"]) for each in _load() if each["what"] == "operation"}
    for operation, lost, moment in product(range(1, operations + 1), range(SIZE), (BEFORE, INSIDE, BEHIND)):
        if (operation, lost, moment) not in known:
            result = _compare(play(SIZE, [Loss(lost, operation, moment)], _SAVING), lost)
            _keep({"what": "operation", "operation": operation, "lost": lost, "moment": moment, "result": result})
            click.echo(f"operation {operation}, rank {lost} killed {moment} it: {result}")


def _compare(run: Run, lost: int) -> str:
    errors = {each.error for each in run.survivors} - {""}
    if any(error.startswith("ShrinkError") for error in errors):
        return "refused"
    if errors:
        return f"failed: {sorted(errors)}"
    try:
        check(run, lost)
    except AssertionError as error:
        return f"wrong: {error}"
    return "equal"


def _machine() -> str:
    return f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"


def _keep(found: Mapping[str, Any]) -> None:
    line = {**found, "load": os.getloadavg()[0], "date": str(datetime.now(UTC).date()), "machine": _machine()}
    with OUT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _load() -> list[dict[str, Any]]:
    return [json.loads(line) for line in OUT.read_text().splitlines()] if OUT.exists() else []


_COLUMNS = ("what", "p50", "p95", "most", "end of the process", "usual step", "steps repeated", "rounds", "n", "run")


def _rows(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield _row(*_COLUMNS)
    yield _row(*["---"] * len(_COLUMNS))
    for size, million in sorted({(each["size"], each["million"]) for each in found if each["what"] == "kill"}):
        part = [each for each in found if (each["what"], each["size"], each["million"]) == ("kill", size, million)]
        longest = sorted(took for each in part for took in each["longest"])
        p95 = longest[min(int(0.95 * len(longest)), len(longest) - 1)]
        times = [statistics.median(longest), p95, longest[-1]]
        times += [statistics.median(each[key] for each in part) for key in ("process_end", "median")]
        counts = [sum(each[key] for each in part) for key in ("repeated", "restarted")]
        what = f"{size} workers, {million} million parameters: longest step of a survivor"
        yield _row(what, *(f"{took:.0f} ms" for took in times), *counts, f"{len(part)} kills", _run(part))
    yield from _operations([each for each in found if each["what"] == "operation"])
    for million in sorted({each["million"] for each in found if each["what"] == "cost"}):
        part = [each for each in found if (each["what"], each["million"]) == ("cost", million)]
        ratios = sorted(each["with"] / each["without"] for each in part)
        usual = statistics.median(each["without"] for each in part)
        what = f"3 workers, {million} million parameters: a step with the field by one without it"
        shown = (
            f"{statistics.median(ratios):.2f}",
            "",
            f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
            "",
            f"{usual:.0f} ms",
            "",
            "",
        )
        yield _row(what, *shown, f"{len(part)} turns", _run(part))


def _operations(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return a row for each rank: how often the survivors had the reference's parameters."""
    for lost in sorted({each["lost"] for each in found}):
        part = [each for each in found if each["lost"] == lost]
        counts = Counter(each["result"].partition(":")[0] for each in part)
        what = f"3 workers, rank {lost} killed before, inside and behind each of {len(part) // 3} operations"
        words = ", ".join(f"{count} {result}" for result, count in counts.most_common())
        yield _row(what, words, *[""] * 6, f"{len(part)} kills", _run(part))


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _run(part: Sequence[Mapping[str, Any]]) -> str:
    loads = [each["load"] for each in part]
    return f"{part[-1]['machine']}, load {min(loads):.1f} to {max(loads):.1f}, {part[-1]['date']}"


@cli.command()
def table() -> None:
    """Put the table of what is kept into survivors.md."""
    text, (begin, end) = README.read_text(), MARKS
    before, after = text.partition(begin)[0], text.partition(end)[2]
    README.write_text("\n".join([before + begin, *_rows(_load()), end]) + after)


if __name__ == "__main__":
    cli(prog_name="python -m benchmarks.survivors")
