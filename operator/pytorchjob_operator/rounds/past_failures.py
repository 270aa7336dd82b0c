"""The failures of a job, in the form in which they survive a coordinator. Pure.

The agents keep them: each assignment has them, and a hello brings them back. So a new leader judges the next failure as
the former one would have: by the failures of the last seconds, the same error again, and restarts without progress.
"""

from collections.abc import Sequence
from zlib import crc32

from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.rounds.values import PastRestart

MOST = 64
"""How many failures survive: the last ones."""
_NUMBERS = 3
"""Of each failure: its age in seconds, the step that its round reached plus 1 (0: unknown), its signature."""


def signature(text: str) -> str:
    """Return a short text that is equal for equal errors, and is a number."""
    return str(crc32(text.encode(errors="replace")))


def encode(history: Sequence[PastRestart], now: float) -> tuple[int, ...]:
    """Return the last failures of a history as whole numbers."""
    found = [past for past in history if past.counted and past.signature.isdecimal()][-MOST:]
    numbers: list[int] = []
    for past in found:
        step = 0 if past.step is None else past.step + 1
        numbers += [max(round(now - past.at), 0), step, int(past.signature)]
    return tuple(numbers)


def restore(
    history: tuple[PastRestart, ...], numbers: Sequence[int], age: float, now: float
) -> tuple[PastRestart, ...]:
    """Return the history with the failures that an agent reports, if this coordinator knows fewer.

    A coordinator that has counted a failure itself has the history: nothing is restored any more.
    """
    if any(past.counted and past.message for past in history) or len(numbers) % _NUMBERS:
        return history
    known = [past for past in history if past.counted]
    if len(numbers) // _NUMBERS <= len(known):
        return history
    rows = [numbers[start : start + _NUMBERS] for start in range(0, len(numbers), _NUMBERS)][-MOST:]
    restored = tuple(
        PastRestart(
            now - age - seconds,
            TrainingReason.WORKER_FAILED,
            "",
            True,
            str(error),
            None if step == 0 else step - 1,
        )
        for seconds, step, error in rows
    )
    return (*restored, *(past for past in history if not past.counted))
