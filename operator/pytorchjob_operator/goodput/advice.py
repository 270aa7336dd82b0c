"""How often the script had better save, by Daly's formula and the job's own figures, and what it would change. Pure.

Rare saves cost replayed steps at each interruption, frequent saves cost the training its time. With a save that costs C
seconds and an interruption each M seconds, the least is lost by a save each sqrt(2 C M) seconds (Young), or a little
less if C is not small beside M (Daly). What else the job lost stays as it was.
"""

from dataclasses import dataclass
from math import floor, log10, sqrt

from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.figures import Figures

_LEAST_POINTS = 0.5
"""A smaller gain is not worth a word."""
_LEAST_SECONDS = 1.0
"""A shorter job does not show the time of a step."""
_ROUND = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""Numbers of steps that people write, up to a power of ten."""
_NEVER = "The script saved nothing: each interruption cost all steps."


@dataclass(frozen=True, slots=True)
class _Model:
    """The job with another interval of saves. Times are seconds."""

    useful: float
    """Steps that no earlier round had done."""
    fixed: float
    """Losses that do not depend on the interval."""
    interruptions: int
    cost: float
    """Of a save."""
    step: float
    """Of a step."""

    def percent(self, steps: float) -> float:
        """Return the goodput that is to be expected with a save after each such number of steps."""
        interval = steps * self.step
        replayed = self.interruptions * interval / 2
        saves = (self.useful + replayed) / interval * self.cost
        return 100 * self.useful / (self.useful + self.fixed + replayed + saves)


def optimum(cost: float, between: float) -> float:
    """Return the seconds of training between two saves that lose the least.

    `cost`: seconds of a save; `between`: mean running seconds between two interruptions.
    """
    if cost >= 2 * between:
        return between
    part = cost / (2 * between)
    return sqrt(2 * cost * between) * (1 + sqrt(part) / 3 + part / 9) - cost


def advise(figures: Figures) -> str:
    """Return one sentence, or nothing: without an interruption, unless all is known, and if little would be gained."""
    saves, useful = figures.saves, figures.of(TimeClass.RUNNING)
    if not (figures.interruptions and figures.steps_known and figures.new_steps) or useful < _LEAST_SECONDS:
        return ""
    if saves.count == 0 and figures.of(TimeClass.WASTED_PROGRESS_FROM_DISRUPTION):
        return _NEVER
    if not (saves.count and saves.steps and saves.seconds):
        return ""
    model = _model(figures, saves.seconds / saves.count)
    interval = optimum(model.cost, useful / figures.interruptions)
    today, better = saves.steps / saves.count, human(interval / model.step)
    would = model.percent(better)
    if would - max(model.percent(today), figures.percent or 0.0) < _LEAST_POINTS:
        return ""
    return f"Saving every {_steps(better)} instead of {_two_digits(today)} would have given {_percent(would)} %."


def _model(figures: Figures, cost: float) -> _Model:
    useful = figures.of(TimeClass.RUNNING)
    depends = figures.of(TimeClass.WASTED_PROGRESS_FROM_DISRUPTION) + figures.saves.seconds
    fixed = max(figures.total - useful - depends, 0.0)
    return _Model(useful, fixed, figures.interruptions, cost, useful / figures.new_steps)


def human(steps: float) -> int:
    """Return the nearest number of steps that people write: 1, 2, ..., 10, 15, 20, 25, 30, 40, ..."""
    if steps < 10:
        return max(round(steps), 1)
    power = 10 ** floor(log10(steps))
    return int(min(_ROUND, key=lambda number: abs(number * power - steps)) * power)


def _two_digits(steps: float) -> int:
    """Return a measured number of steps: it is known to about one in a hundred."""
    return max(round(steps), 1) if steps < 100 else int(float(f"{steps:.1e}"))


def _steps(number: int) -> str:
    return "step" if number == 1 else f"{number} steps"


def _percent(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
