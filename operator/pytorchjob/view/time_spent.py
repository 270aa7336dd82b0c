"""Where a job's time went, up to now: the figures of `status.goodput` with their sentence. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from pytorchjob.view.seen import Seen
from pytorchjob_operator.goodput import figures, sentence


@dataclass(frozen=True, slots=True)
class TimeView:
    """What the job's time was spent on."""

    sentence: str
    """Empty: neither steps nor losses are known."""
    percent: float | None
    """The part in which workers ran and no loss is known."""
    lost_seconds: float
    seconds: Mapping[str, float]
    """By class: the names of `status.goodput.seconds`."""
    interruptions: int


def time_view(seen: Seen) -> TimeView | None:
    """Return the view of this snapshot; None before any time has passed, and without a ledger."""
    found = figures.read(seen.status, seen.now)
    if found is None or found.percent is None:
        return None
    seconds = {each.value: round(spent, 1) for each, spent in found.seconds.items() if spent}
    return TimeView(sentence.describe(found), found.percent, round(found.lost, 1), seconds, found.interruptions)
