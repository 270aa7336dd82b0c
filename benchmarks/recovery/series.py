"""Ten faults in one job, one every half minute whether it has recovered from the last or not: step over time.

The same faults at the same moments for every contender; a fault that finds nothing to hit is left out.
"""

import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.recovery.cells import FAULTS, Scene
from benchmarks.recovery.contenders import CONTENDERS, Contender
from benchmarks.recovery.lines import Journal
from benchmarks.recovery.stage import Stage
from benchmarks.table import machine

FAULTS_IN_TURN = (
    "worker-killed",
    "pod-forced",
    "worker-killed",
    "rank-0-forced",
    "agent-killed",
    "pod-deleted",
    "worker-killed",
    "host-forced",
    "pod-deleted",
    "worker-killed",
)
EVERY_SECONDS = 30.0
_BEFORE_SECONDS = 10.0
_QUIET_SECONDS = 2.0
_POINT_EVERY_STEPS = 10


@dataclass(frozen=True)
class Series:
    """One contender: steps that all ranks had finished, and the faults, by seconds since all trained together."""

    contender: str
    points: tuple[tuple[float, int], ...]
    strikes: tuple[tuple[float, str], ...]
    missed: tuple[str, ...]
    seconds: float
    at: float = 0.0
    """When it began; 0 for those from before dates were kept."""
    machine: str = ""


def play(stage: Stage, contender: Contender) -> Series:
    """Run one contender through the faults."""
    stage.fresh(contender)
    group = stage.settled(_QUIET_SECONDS)
    start = group.complete() or 0.0
    first = group.from_step
    strikes, missed = list[tuple[float, str]](), list[str]()
    for number, name in enumerate(FAULTS_IN_TURN):
        due = start + _BEFORE_SECONDS + number * EVERY_SECONDS
        stage.wait(lambda due=due: True if time.time() >= due else None, 10 * EVERY_SECONDS)
        when = _strike(stage, contender, name)
        if when is None:
            missed.append(name)
        else:
            strikes.append((round(when - start, 2), name))
    end = start + _BEFORE_SECONDS + len(FAULTS_IN_TURN) * EVERY_SECONDS
    stage.wait(lambda: True if time.time() >= end else None, 10 * EVERY_SECONDS)
    points = tuple((round(when - start, 2), step - first) for when, step in points_of(stage.journal) if when <= end)
    return Series(contender.name, points, tuple(strikes), tuple(missed), end - start, start, machine())


def _strike(stage: Stage, contender: Contender, name: str) -> float | None:
    group = stage.journal.current()
    if group is None:
        return None
    try:
        return FAULTS[name].strike(Scene(stage, contender, group)).time
    except (AssertionError, KeyError, IndexError, ValueError, subprocess.CalledProcessError):
        return None  # the pod or the process is not there: it has not recovered from the fault before


def points_of(journal: Journal) -> Iterator[tuple[float, int]]:
    """The steps that all ranks of a group had finished, in order of time, thinned out."""
    for group in sorted(journal.groups.values(), key=lambda group: int(group.name)):
        if group.complete() is None:
            continue
        last = group.common()
        when = dict.fromkeys(range(group.from_step + 1, last + 1), 0.0)
        for steps in group.steps.values():
            for step, finished in steps:
                if step in when:
                    when[step] = max(when[step], finished)
        shown = [step for step in when if (step - group.from_step) % _POINT_EVERY_STEPS == 1 or step == last]
        yield from ((when[step], step) for step in shown)


def keep(path: Path, series: Series) -> None:
    """Keep the series of a contender in the place of the one before."""
    kept = {known.contender: known for known in load(path)} | {series.contender: series}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(known)) + "\n" for known in kept.values()))


def load(path: Path) -> list[Series]:
    """All that were kept, in the order of the contenders."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [_series(json.loads(line)) for line in lines]
    return sorted(found, key=lambda series: list(CONTENDERS).index(series.contender))


def _series(raw: dict[str, list[list[float]]]) -> Series:
    def tuples(rows: Iterable[list[float]]) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(row) for row in rows)

    read = {**raw, "points": tuples(raw["points"]), "strikes": tuples(raw["strikes"]), "missed": tuple(raw["missed"])}
    return Series(**read)  # type: ignore[arg-type]
