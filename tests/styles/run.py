"""Runs the scripts of `styles.py` with real agents and a real coordinator, disturbs them, and judges each start."""

import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent.contract.checkpoint_rules import CHECKPOINT, CheckpointRules
from pytorchjob_agent.contract.environment import START_MODE
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.rounds import budget
from pytorchjob_operator.rounds.values import Policy
from tests.agent.rendezvous.conftest import JOB, ROOT, Job, end, led
from tests.styles.states import losses
from tests.styles.styles import STYLES, sizes
from tests.waiting import until

SCRIPT = (sys.executable, "-m", "pytorchjob_agent", "run", "--", "-m", "tests.styles.worker")
MEMORY = 10**8
REFUSAL = re.compile("CheckpointsNeverRest|CheckpointsOfOneName|no checkpoint is kept")
"""What members report of saves that cannot be held, among other problems."""
START_SECONDS = 90.0
"""Only a job that does not start again needs them."""
BEHIND_WORKER, BEHIND_POD = 1, 2
"""Finished saves that a start may be behind: a save without a rename that was finished just before a kill looks like
one that was cut; a pod that is lost with its memory takes with it what was not copied yet."""

Record = dict[str, Any]


@dataclass
class Fault:
    """What was done to the job."""

    kind: str
    """`worker` (SIGKILL) or `pod` (all processes and the memory)."""
    index: int
    moment: str
    step: int = 0
    """The newest step of any rank then."""
    loaded: int | None = None
    """The step from which the ranks started after it; None if the style is left to the script, or they were unequal."""
    behind: int = 0
    """Finished saves that were newer than what was loaded."""


@dataclass
class Outcome:
    """What a run showed."""

    style: str
    seed: int
    faults: list[Fault] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Broken promises."""
    refused: str = ""
    """The sentence with which the style is left to the script."""
    steps: int = 0

    @property
    def verdict(self) -> str:
        """One word."""
        return "wrong" if self.wrong else "refused" if any(fault.loaded is None for fault in self.faults) else "kept"

    def to_json(self) -> str:
        """One line."""
        return json.dumps({**asdict(self), "verdict": self.verdict})


class Disturbed:
    """One job of one style."""

    def __init__(self, job: Job, style: str, seed: int) -> None:
        """Prepare; `start` starts the pods."""
        self.job, self.style, self.random = job, STYLES[style], random.Random(seed)
        self.outcome = Outcome(style, seed)
        self._uids = dict.fromkeys(range(self.style.world), "u")
        self._gone: Counter[int] = Counter()
        """Of `_saved`, what an earlier fault has cost: no later start can be from it."""
        self._stop = job.folder / "stop"
        # Five kills within seconds of five starts look like an error that repeats: these workers report no steps.
        job.policy, job.expected = Policy(self.style.world, self.style.world, early_errors=10**6), {}
        job.env |= {"PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}", "STOP": str(self._stop), "STYLE": style}
        job.env[START_MODE] = ("cold", "warm")[seed % 2]
        self._judged: set[str] = set()

    def memory(self, index: int) -> Path:
        """The memory of a pod."""
        return self.job.folder / f"memory-{index}-{self._uids[index]}"

    def start(self) -> None:
        """Start all pods, and wait until their workers have started."""
        for index in range(self.style.world):
            self._start(index)
        self._started()

    def _start(self, index: int) -> None:
        place = str(self.memory(index))
        given = {
            CHECKPOINT: CheckpointRules(place, MEMORY, 1).to_json(),
            "FOLDER": place,
            "RECORDS": str(self._records(index)),
        }
        self.job.start(index, self._uids[index], SCRIPT, **given)

    def _records(self, index: int) -> Path:
        return self.job.folder / f"records-{index}.jsonl"

    def records(self, index: int, kind: str) -> list[Record]:
        """What the workers of a pod wrote, in their order."""
        path = self._records(index)
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [record for line in lines if f'"kind": "{kind}"' in line and (record := json.loads(line))]

    def all(self, kind: str) -> list[Record]:
        """The same for all pods."""
        return [record for index in range(self.style.world) for record in self.records(index, kind)]

    def _saved(self) -> Counter[int]:
        """How often each step was saved, by any rank."""
        return Counter(record["step"] for record in self.all("saved"))

    def _newest(self, kind: str = "step") -> int:
        return max((record["step"] for record in self.all(kind)), default=0)

    def _rounds(self) -> dict[str, list[Record]]:
        found: dict[str, list[Record]] = {}
        for record in self.all("start"):
            found.setdefault(record["round"], []).append(record)
        return {name: starts for name, starts in found.items() if name not in self._judged}

    def _started(self) -> list[Record]:
        """Wait for a round whose ranks have all started, or for a start that is wrong; return the starts."""

        def ended() -> list[Record]:
            for name, starts in self._rounds().items():
                if len(starts) == self.style.world or _wrong(starts):
                    self._judged.add(name)
                    return starts
            over = {index: pod.process.poll() for index, pod in self.job.pods.items()}
            assert not any(code is not None for code in over.values()), f"agents ended: {over}"
            return []

        starts = until(ended, START_SECONDS)
        self.outcome.wrong += _wrong(starts)
        return starts

    def _refusal(self) -> str:
        """Return why the style is left to the script now, if it is."""
        assert self.job.coordinator is not None
        report = self.job.coordinator.report(JOB)
        words = "" if report is None else report.problems.get(TrainingReason.CHECKPOINTS, "")
        return words if REFUSAL.search(words) else ""

    def disturb(self) -> None:
        """One fault at a random moment, and the start after it."""
        fault = self._fault()
        index = fault.index
        fault.step, finished = self._newest(), sorted(self._saved() - self._gone)
        before, rank, refused = sizes(self.memory(index)), self.records(index, "start")[-1]["rank"], self._refusal()
        if fault.kind == "pod":
            end(self.job.pods[index])
            shutil.rmtree(self.memory(index))
            self._uids[index] = f"v{len(self.outcome.faults)}"
            self._start(index)
        else:
            with suppress(ProcessLookupError):
                os.kill(self.records(index, "start")[-1]["pid"], signal.SIGKILL)
        self.outcome.faults.append(fault)
        starts, saved = self._started(), self._saved()
        found = (
            next((each["files"] for each in starts if each["rank"] == rank), {}) if fault.kind == "worker" else before
        )
        if not self.outcome.wrong:
            self._judge(fault, starts[0]["steps"]["model"], finished)
            newer = {step: times for step, times in saved.items() if step > (fault.loaded or 0)}
            self._gone.update(Counter(newer) - self._gone)
            lost = [name for name in self.style.keeps if found.get(name, -1) < before.get(name, -1)]
            self.outcome.wrong += [f"gone: the script's own {name}" for name in lost]
        if self.outcome.wrong:
            self._excuse(fault, refused, [name for name in before if name not in found])

    def _judge(self, fault: Fault, loaded: int, finished: list[int]) -> None:
        fault.loaded, fault.behind = loaded, sum(step > loaded for step in finished)
        most = self.style.late + (BEHIND_POD if fault.kind == "pod" else BEHIND_WORKER)
        if (fault.behind > most or loaded == 0) and not self.style.forgets:
            self.outcome.wrong.append(f"late: from {loaded} although {finished[-4:]} were saved")

    def _excuse(self, fault: Fault, refused: str, moved: list[str]) -> None:
        """If the style is left to the script, its own storage decides: nothing is moved, and a sentence says so."""
        with suppress(AssertionError):
            refused = refused or until(self._refusal, 5)
        if refused:
            fault.loaded = None
            self.outcome.refused = f"{refused} ({'; '.join(self.outcome.wrong)})"
            self.outcome.wrong = [f"moved although the style is refused: {name}" for name in moved]

    def _fault(self) -> Fault:
        """Wait for a random moment, after the second save of all."""
        until(lambda: len({record["step"] for record in self.all("saved")}) > 1, START_SECONDS)
        kind = "pod" if self.random.random() < 0.4 else "worker"
        if self.random.random() < 0.5:
            begun = len(self.all("saving"))
            until(lambda: len(self.all("saving")) > begun, START_SECONDS, every=0.005)
            time.sleep(self.random.uniform(0, 0.4))
            moment = "in a save"
        else:
            time.sleep(self.random.uniform(0, 5))
            moment = "any"
        return Fault(kind, self.random.randrange(self.style.world), moment)

    def finish(self) -> None:
        """Let the script end, and compare its losses with those of a run that nothing disturbed."""
        self._stop.touch()
        unequal = any(fault.loaded is None for fault in self.outcome.faults)
        if not self.outcome.wrong and not unequal:
            codes = self.job.end()
            self.outcome.wrong += [f"exit codes {codes}"] if any(codes) else []
        steps = self.all("step")
        self.outcome.steps = max(each["step"] for each in steps)
        wanted = losses(self.outcome.steps, self.style.world)
        different = sorted({each["step"] for each in steps if not _is_close(each["loss"], wanted[each["step"] - 1])})
        if different and not unequal:
            self.outcome.wrong.append(f"losses: {len(different)} steps differ, the first is {different[0]}")


def _is_close(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other))


def _wrong(starts: list[Record]) -> list[str]:
    """What is wrong with the starts of one round."""
    found = [f"torn: rank {each['rank']}: {each['error']}" for each in starts if "error" in each]
    whole = [each for each in starts if "error" not in each]
    found += [f"mixed: rank {each['rank']}: {each['steps']}" for each in whole if len({*each["steps"].values()}) > 1]
    found += [f"foreign: rank {each['rank']} has loaded {each['of']}" for each in whole if each["of"] != each["rank"]]
    if len({each["digest"] for each in whole}) > 1:
        found.append(f"unequal: { ({each['rank']: each['steps']['model'] for each in whole}) }")
    return found


def run(style: str, kills: int, seed: int, folder: Path, told: Callable[[Fault], None] = lambda fault: None) -> Outcome:
    """Run one style with this many faults; it ends with the first broken promise."""
    with pytest.MonkeyPatch.context() as changed, led(folder) as job:
        # Each kill soon after a start would make the pause before the next round twice as long: a minute in the end.
        changed.setattr(budget, "LONGEST_PAUSE", 0.0)
        disturbed = Disturbed(job, style, seed)
        outcome = disturbed.outcome
        try:
            disturbed.start()
            for _ in range(kills):
                disturbed.disturb()
                told(outcome.faults[-1])
                if outcome.wrong or outcome.faults[-1].loaded is None:
                    break
            disturbed.finish()
        except AssertionError as error:
            outcome.wrong.append(f"stuck: {error}")
        return outcome
