"""A job's ledger in words: `92.1 % running; 4 min lost to 3 pod losses, 2 min to replayed steps.` Pure.

A sentence of `advice` about the interval of saves follows if there is one. Without known steps there is no percentage:
the running time may then be steps that were done before, or workers that fail before their first step.
"""

from collections.abc import Iterator

from pytorchjob_operator.goodput.advice import advise
from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.figures import Figures
from pytorchjob_operator.goodput.interruptions import InterruptionKind

_LEAST = 0.5
"""Seconds below which a loss is not worth a word."""
_BY_INTERRUPTIONS = (
    TimeClass.DETECTION,
    TimeClass.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION,
)
_CAUSES = {
    TimeClass.WASTED_PROGRESS_FROM_DISRUPTION: "replayed steps",
    TimeClass.PROGRAM_STARTUP: "start",
    TimeClass.WAITING_FOR_PODS: "waiting for pods",
    TimeClass.HUNG: "hung workers",
    TimeClass.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME: "saves",
    TimeClass.UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME: "loads",
    TimeClass.SUSPENDED: "suspension",
    TimeClass.QUEUED: "waiting in the queue",
    TimeClass.OTHER: "the end",
}
_KINDS = {
    InterruptionKind.POD_LOST: ("pod loss", "pod losses"),
    InterruptionKind.CRASH: ("crash", "crashes"),
    InterruptionKind.HANG: ("hang", "hangs"),
}
_UNKNOWN = "Without known steps, repeated steps are unknown."
_REST = (("interruption", "interruptions"), ("other interruption", "other interruptions"))
"""Interruptions of unknown cause: alone, and beside known ones."""
_UNITS = ((60.0, 1.0, "s"), (3600.0, 60.0, "min"), (86_400.0, 3600.0, "h"))


def describe(figures: Figures) -> str:
    """Return the sentences. Empty before any time has passed, and without known steps if no loss is known either."""
    if figures.percent is None:
        return ""
    lost = _lost(figures)
    if not figures.steps_known:
        return f"{lost}. {_UNKNOWN}" if lost else ""
    text = f"{figures.percent:.1f} % running{'; ' if lost else ''}{lost}."
    more = advise(figures)
    return f"{text} {more}" if more else text


def _lost(figures: Figures) -> str:
    """Return the losses, the largest first: 4 min lost to 3 pod losses, 2 min to replayed steps."""
    losses = sorted(_losses(figures), key=lambda loss: -loss[0])
    return ", ".join(
        f"{_time(seconds)}{'' if number else ' lost'} to {cause}" for number, (seconds, cause) in enumerate(losses)
    )


def _losses(figures: Figures) -> Iterator[tuple[float, str]]:
    causes = [((each,), cause) for each, cause in _CAUSES.items()]
    for classes, cause in ((_BY_INTERRUPTIONS, _interruptions(figures)), *causes):
        seconds = figures.of(*classes)
        if seconds >= _LEAST:
            yield seconds, cause


def _interruptions(figures: Figures) -> str:
    """Return what interrupted the job: 3 pod losses and 1 crash; only their restarts where steps are unknown."""
    counts = {cause: getattr(figures.causes, cause.value) for cause in InterruptionKind}
    known = [_count(number, *_KINDS[cause]) for cause, number in counts.items() if number]
    rest = figures.interruptions - sum(counts.values())
    if rest > 0:
        known.append(_count(rest, *_REST[bool(known)]))
    if not known:
        return "regrouping"
    text = " and ".join((", ".join(known[:-1]), known[-1])) if known[1:] else known[0]
    return text if figures.steps_known else f"restarts after {text}"


def _count(number: int, single: str, many: str) -> str:
    return f"{number} {single if number == 1 else many}"


def _time(seconds: float) -> str:
    """Return a time with two digits where it is short: 4.2 s, 42 s, 4.2 min."""
    _, unit, name = next((row for row in _UNITS if seconds < row[0]), (0.0, 86_400.0, "d"))
    value = seconds / unit
    return f"{value:.0f} {name}" if value >= 9.95 else f"{value:.1f} {name}".replace(".0 ", " ")
