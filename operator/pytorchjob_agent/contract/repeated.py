"""Failures that every start repeats: another round has the same code, the same arguments, the same place. Pure.

The coordinator judges by it. So does an agent whose workers start again without one: with another rendezvous, and
while the members agree on rounds among themselves.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

from .collectives import NOWHERE, Places

SAME_HANG = 3
"""The same hang this many times in a row, at the same place and no step between, is permanent."""
HANG_SECONDS = 3600.0
"""Hangs that are further apart are not the same: a script that reports no steps has trained between them."""
SHORT_SECONDS = 20.0
"""Where no worker ever reported a step: workers that fail sooner made no progress."""
_USAGE = 2
"""The exit code of argparse, and of Python for a script that does not exist."""
_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "TabError"})
"""Errors of the code itself."""


def why_repeated(errors: Sequence[str], exit_code: int, *, early: bool) -> str:
    """Return why each start repeats this failure, in a sentence; empty if another start may go better.

    `errors`: the types of the error, the uncaught one first. `early`: the workers made no progress before.
    """
    if not _ERRORS.isdisjoint(errors[:1]):
        return f"Every start repeats {errors[0]}: correct the image or the script"
    if early and exit_code == _USAGE:
        return f"Exit code {_USAGE} before the first step means a wrong command line or script: every start repeats it"
    return ""


class Hangs(NamedTuple):
    """The hangs in a row of one agent's workers."""

    places: Places = NOWHERE
    """Where each rank was; empty: not known, so that no other hang is the same."""
    step: int | None = None
    at: float = 0.0
    times: int = 0

    def then(self, places: Places, step: int | None, now: float) -> Self:
        """Return the row with one more hang; `now` in seconds."""
        further = (step or 0) > (self.step or 0)
        same = bool(places) and places == self.places and not further and now - self.at < HANG_SECONDS
        return self._replace(places=places, step=step, at=now, times=self.times + 1 if same else 1)

    @property
    def why(self) -> str:
        """Why another start hangs again, in a sentence; empty if it may not."""
        return why_same_hang() if self.times >= SAME_HANG else ""


def why_same_hang() -> str:
    """Return the sentence about the last of `SAME_HANG` equal hangs."""
    return f"The same hang occurred {SAME_HANG} times in a row: no rank got any further"
