"""One cell of the table: the same fault again and again, in the same job as long as that is fair to the next one.

A job in which a container was restarted is replaced: the kubelet waits longer before each further restart of a
container, so what the next repetition would show is how often there had been one before.
"""

import itertools
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from benchmarks.recovery import train
from benchmarks.recovery.cells import FAULTS, Fault, Scene, Struck
from benchmarks.recovery.contenders import CHECKPOINT_STEPS, LEAST, STEP_SECONDS, Contender
from benchmarks.recovery.lines import Loss, Recovery, longest_gap, recovery, replaced
from benchmarks.recovery.results import Repetition
from benchmarks.recovery.stage import Stage
from benchmarks.table import machine
from e2e import faults

_QUIET_SECONDS = 4.0
_ATTEMPTS = 3
_WATCHED_SECONDS = 20.0
"""How long steps are watched after a fault that should cost none."""
_PHASE_SECONDS = 2 * CHECKPOINT_STEPS * STEP_SECONDS


class Truth(Iterable[float]):
    """The losses of an undisturbed run, each worked out once."""

    def __init__(self) -> None:
        self._known: list[float] = []
        self._source = train.losses()

    def __iter__(self) -> Iterator[float]:
        """From step 1 on, without end."""
        for number in itertools.count():
            if number == len(self._known):
                self._known.append(next(self._source))
            yield self._known[number]


def replay(steps: Mapping[int, Loss]) -> Iterator[float]:
    """Yield the loss of each step, from step 1 on, computed with the shares of the batch that the steps had.

    A rank that is lost between the gradients and the sum of the losses is in the former alone: both are computed, and
    the one stands whose next loss is that of the job.
    """
    ways, before = [train.model()], ""
    for step in range(1, max(steps, default=0) + 1):
        found = steps.get(step)
        marks = found.shares if found else before
        told = [train.part(net, step, marks).item() for net in ways]
        nearest = min(range(len(ways)), key=lambda way: abs(told[way] - found.value) if found else 0.0)
        yield told[nearest]
        net = ways[nearest]
        ways = [train.trained(net, step, each) for each in _with_gradients(marks, before)]
        before = marks


def _with_gradients(marks: str, before: str) -> list[str]:
    """Which shares may be in the gradients of a step whose loss has these; `before`: those of the step before."""
    lost = len(before) == len(marks) and any(old > new for old, new in zip(before, marks, strict=True))
    return [marks, *([before] if lost else [])]


class Cell:
    """One fault and one contender on one stage."""

    def __init__(self, stage: Stage, contender: Contender, fault: Fault) -> None:
        self._stage, self._contender, self._fault = stage, contender, fault
        self._fresh, self._truth = True, Truth()

    def repeat(self) -> Repetition:
        """Let the job train in peace, strike, and wait until it trains again or the limit is over."""
        scene = self._peace()
        before = faults.restarts(self._stage.kubectl, self._stage.name)
        time.sleep(random.uniform(0, _PHASE_SECONDS))
        self._stage.read()
        known = self._stage.journal.known()
        struck = self._fault.strike(scene)
        try:
            done = self._measure(scene, struck, known, before) if self._fault.disturbs else self._watch(scene, struck)
        finally:
            struck.undo()
        self._fresh = self._fault.fresh or done.seconds is None or bool(done.restarted) or bool(done.problems)
        return done

    def _peace(self) -> Scene:
        """A job that trains in peace: a new one if it has to be, or if the present one does not come to rest."""
        for attempt in range(_ATTEMPTS):
            if self._fresh:
                self._stage.fresh(self._contender)
            try:
                return self._scene()
            except TimeoutError as error:
                print(f"{self._fault.name} {self._contender.name}, attempt {attempt + 1}: {error}", flush=True)
                self._fresh = True
        raise TimeoutError(f"no job of {self._contender.name} comes to rest")

    def _scene(self) -> Scene:
        """A job in which all train; before a scale-up, one worker is taken away, and after a scale-down it is back."""
        stage, name = self._stage, self._fault.name
        if name == "shrink" and not self._fresh:
            faults.scale(stage.kubectl, stage.name, LEAST + 1)
        scene = Scene(stage, self._contender, stage.settled(_QUIET_SECONDS))
        if name == "grow":
            self._shrunk(scene)
            group = stage.settled(_QUIET_SECONDS, size=LEAST)
            return Scene(stage, self._contender, group)
        return scene

    def _shrunk(self, scene: Scene) -> None:
        FAULTS["shrink"].strike(scene)
        gone = f"{self._stage.name}-worker-{LEAST}"
        self._stage.wait(lambda: None if gone in scene.pods() else True, 60)

    def _measure(self, scene: Scene, struck: Struck, known: set[str], before: dict[str, int]) -> Repetition:
        stage, size = self._stage, self._fault.size
        found = stage.wait(lambda: recovery(stage.journal, struck.time, scene.group, known, size), self._fault.limit)
        return self._repetition(struck, found, *self._after(struck, before))

    def _watch(self, scene: Scene, struck: Struck) -> Repetition:
        stage, end = self._stage, struck.time + _WATCHED_SECONDS
        stage.wait(lambda: True if scene.group.latest() > end else None, _WATCHED_SECONDS + 10)
        gap = longest_gap(scene.group, struck.time, end)
        kept = scene.group.latest() > end
        cost = Recovery(gap, gap, gap, 0.0, 0, 0, 1) if kept else None
        stage.operator("rollout", "status", "deployment", "--timeout=120s")
        return self._repetition(struck, cost, None, 0)

    def _after(self, struck: Struck, before: dict[str, int]) -> tuple[float | None, int]:
        """When the container that was lost had started anew, and how many others were restarted.

        One that was restarted again before it trained does not tell when it had started first.
        """
        stage = self._stage
        hit = faults.pods_by_name(stage.kubectl, stage.name).get(struck.pod, {}).get("metadata", {}).get("uid")
        after = faults.restarts(stage.kubectl, stage.name)
        others = sum(count - before[uid] for uid, count in after.items() if uid in before and uid != hit)
        expected = before[hit] + 1 if hit in before else 0
        when = replaced(stage.journal, struck.pod, struck.time)
        known = struck.replaced and when is not None and after.get(hit) == expected
        return (when - struck.time if known and when else None), others

    def _repetition(self, struck: Struck, cost: Recovery | None, pod: float | None, restarted: int) -> Repetition:
        journal = self._stage.journal
        problems = [*journal.problems, *journal.wrong(self._truth)]
        if cost and cost.lost_steps > CHECKPOINT_STEPS:
            problems.append(f"{cost.lost_steps} steps were lost, with a checkpoint every {CHECKPOINT_STEPS}")
        return Repetition(
            contender=self._contender.name,
            fault=self._fault.name,
            at=struck.time,
            load=os.getloadavg()[0],
            pod=struck.pod,
            seconds=cost and cost.seconds,
            first_seconds=cost and cost.first_seconds,
            pause_seconds=cost and cost.pause_seconds,
            pod_seconds=pod,
            import_seconds=cost and cost.import_seconds,
            lost_steps=cost and cost.lost_steps,
            groups=cost and cost.groups,
            restart_counts=cost and cost.restart_counts,
            restarted=restarted,
            problems=tuple(problems[:5]),
            machine=machine(),
        )


def measure(stage: Stage, contender: Contender, fault: Fault, more: Callable[[Repetition | None], bool]) -> None:
    """Repeat one cell as long as `more` wants it, which is given each repetition."""
    cell, last = Cell(stage, contender, fault), None
    while more(last):
        last = cell.repeat()
