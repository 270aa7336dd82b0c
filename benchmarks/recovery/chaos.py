"""Half an hour of random faults, one about every half minute, whether the job has recovered from the last or not.

What counts at the end: the job recovered without help, and its losses are those of an undisturbed run. The goodput is
the useful share of the time: the steps that stand, at the pace before the first fault, over the time that it took.
"""

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.recovery.cells import FAULTS, Scene, Struck
from benchmarks.recovery.contenders import CONTENDERS, Contender
from benchmarks.recovery.lines import Group
from benchmarks.recovery.measure import replay
from benchmarks.recovery.stage import Stage
from benchmarks.table import machine
from e2e import faults
from pytorchjob_operator.goodput import figures
from pytorchjob_operator.goodput.classes import TimeClass

REPLICAS = 4
EVERY_SECONDS = 30.0
_CALM_SECONDS = 20.0
_QUIET_SECONDS = 4.0
_UNDO_SECONDS = 20.0
"""How long a node stays frozen, cut off or dead."""
_AFTER_SECONDS = 20.0
_WEIGHTS = {
    "worker-killed": 6,
    "worker-frozen": 2,
    "agent-killed": 3,
    "pod-deleted": 3,
    "pod-forced": 3,
    "rank-0-forced": 3,
    "operator-killed": 2,
    "node-frozen": 1,
    "node-cut": 1,
    "node-killed": 1,
}


@dataclass(frozen=True)
class Outcome:
    """How it went."""

    contender: str
    minutes: float
    seed: int
    struck: dict[str, int]
    missed: int
    """Faults that found nothing to hit, because the job had not recovered from the one before."""
    steps: int
    """Steps that stand at the end."""
    pace: float
    """Seconds of a step in peace."""
    goodput: float
    groups: int
    """How often all processes came together."""
    recovered: bool
    """Whether all ranks trained together at the end, without help."""
    problems: tuple[str, ...]
    ledger: Mapping[str, float]
    """What the operator booked meanwhile: seconds by the names of `status.goodput.seconds`."""
    costs: Mapping[str, Sequence[float]]
    """By the name of a fault: the seconds that the ledger lost from each such fault to the next fault."""
    at: str
    """The day."""
    machine: str
    returns: int = 0
    """How often a lost rank came back into a group that went on without it."""

    def words(self) -> str:
        """Return it as lines for a person."""
        hits = ", ".join(f"{count} x {name}" for name, count in sorted(self.struck.items()))
        faults_in_all = sum(self.struck.values())
        return "\n".join(
            (
                f"{self.at}, {self.machine}",
                f"{self.contender}: {faults_in_all} faults in {self.minutes:g} minutes (seed {self.seed}): {hits}",
                f"{self.missed} found nothing to hit; {self.groups} groups, into which {self.returns} ranks came back; "
                f"{self.steps} steps stand",
                f"goodput {100 * self.goodput:.1f} % (a step takes {1000 * self.pace:.0f} ms in peace)",
                f"manual interventions: {0 if self.recovered else 'it does not train at the end'}",
                f"the operator's ledger: {_spent(self.ledger)}",
                f"lost from a fault to the next one, in the median: {_by_fault(self.costs)}",
                f"problems: {'; '.join(self.problems) or 'none'}",
            )
        )


def play(stage: Stage, contender: Contender, minutes: float, seed: int) -> Outcome:
    """Run it; every choice follows from the seed, every moment from the clock."""
    chance = random.Random(seed)
    random.seed(seed)  # the faults choose their victims by it
    stage.fresh(contender, REPLICAS)
    group = stage.settled(_QUIET_SECONDS, size=REPLICAS)
    pace = _pace(stage, group)
    begun, first, booked = time.time(), stage.journal.current() or group, _booked(stage)
    base, struck, missed = first.common(), Counter[str](), 0
    due, faults_and_lost = begun, [("", lost(booked))]
    while (due := due + chance.uniform(0.5, 1.5) * EVERY_SECONDS) < begun + 60 * minutes:
        stage.wait(lambda due=due: True if time.time() >= due else None, 10 * EVERY_SECONDS)
        name = chance.choices([*_WEIGHTS], [*_WEIGHTS.values()])[0]
        before = lost(_booked(stage))
        if _strike(stage, contender, name):
            struck[name] += 1
            faults_and_lost.append((name, before))
        else:
            missed += 1
    recovered = _ends_well(stage)
    last, took = stage.journal.current() or group, time.time() - begun
    ended = _booked(stage)
    ledger = {name: round(seconds - booked.get(name, 0.0), 2) for name, seconds in ended.items()}
    steps = last.common() - base
    problems = (*stage.journal.problems, *stage.journal.wrong(replay(stage.journal.losses)))
    return Outcome(
        contender.name, minutes, seed, dict(struck), missed, steps, pace, steps * pace / took,
        len(stage.journal.groups), recovered, problems[:5], ledger,
        costs([*faults_and_lost, ("", lost(ended))]), str(datetime.now(UTC).date()), machine(),
        sum(each.returns for each in stage.journal.groups.values()),
    )  # fmt: skip


def costs(faults_and_lost: Sequence[tuple[str, float]]) -> dict[str, list[float]]:
    """By fault, what was lost until the next one: each entry is a fault and the seconds that were lost before it."""
    found: dict[str, list[float]] = {}
    for (name, before), (_, after) in pairwise(faults_and_lost):
        if name:
            found.setdefault(name, []).append(round(after - before, 2))
    return found


def keep(path: Path, outcome: Outcome) -> list[Outcome]:
    """Keep the outcome of a contender in the place of the one before; return all, in the order of the contenders."""
    kept = {known.contender: known for known in load(path)} | {outcome.contender: outcome}
    found = sorted(kept.values(), key=lambda known: [*CONTENDERS].index(known.contender))
    path.write_text("".join(json.dumps(asdict(known)) + "\n" for known in found))
    return found


def load(path: Path) -> list[Outcome]:
    """All that were kept; earlier versions named the time of running workers `productive`."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [_outcome(json.loads(line)) for line in lines]


def _outcome(raw: dict[str, Any]) -> Outcome:
    ledger = {TimeClass.RUNNING.value if name == "productive" else name: each for name, each in raw["ledger"].items()}
    return Outcome(**{"costs": {}, **raw, "problems": tuple(raw["problems"]), "ledger": ledger})


def _booked(stage: Stage) -> dict[str, float]:
    """The ledger of the job up to now; empty for a job that has none."""
    status = stage.kubectl.get("pytorchjob", stage.name).get("status", {})
    found = figures.read(status, datetime.now(UTC))
    return {} if found is None else {each.value: seconds for each, seconds in found.seconds.items()}


def _spent(ledger: Mapping[str, float]) -> str:
    """The classes of a ledger with their seconds, the longest first."""
    whole = sum(ledger.values())
    ordered: Iterable[tuple[str, float]] = sorted(ledger.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {seconds:.1f} s ({seconds / whole:.1%})" for name, seconds in ordered if seconds)


def lost(ledger: Mapping[str, float]) -> float:
    """The seconds of a ledger that are known to be lost."""
    return sum(seconds for name, seconds in ledger.items() if name != TimeClass.RUNNING)


def _by_fault(costs: Mapping[str, Sequence[float]]) -> str:
    """The faults with the median of what they cost, the dearest first."""
    medians = {name: median(seconds) for name, seconds in costs.items()}
    ordered = sorted(medians, key=lambda name: -medians[name])
    return ", ".join(f"{name} {medians[name]:.1f} s" for name in ordered) or "unknown"


def _pace(stage: Stage, group: Group) -> float:
    """Seconds of a step, over a while of peace."""
    begun, step = time.time(), group.common()
    stage.wait(lambda: True if time.time() - begun > _CALM_SECONDS else None, 10 * _CALM_SECONDS)
    return (time.time() - begun) / max(group.common() - step, 1)


def _strike(stage: Stage, contender: Contender, name: str) -> bool:
    group = stage.journal.current()
    if group is None:
        return False
    try:
        struck: Struck = FAULTS[name].strike(Scene(stage, contender, group))
    except (AssertionError, KeyError, IndexError, ValueError, subprocess.CalledProcessError):
        return False
    print(f"{time.strftime('%H:%M:%S')} {name} {struck.pod}", flush=True)
    if name.startswith("node-"):
        end = time.time() + _UNDO_SECONDS
        stage.wait(lambda: True if time.time() >= end else None, 2 * _UNDO_SECONDS)
        struck.undo()
    return True


def _ends_well(stage: Stage) -> bool:
    """Whether all train together once the faults have stopped, and the last one has had its effect."""
    stage.wait(lambda: None, _AFTER_SECONDS)
    try:
        stage.settled(_QUIET_SECONDS, size=REPLICAS)
    except TimeoutError:
        return False
    return len(faults.pods_by_name(stage.kubectl, stage.name)) == REPLICAS
