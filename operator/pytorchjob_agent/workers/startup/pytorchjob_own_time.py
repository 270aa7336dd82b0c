"""Measures in a worker which part of its time a rank spends outside collectives: its own time. Pure.

All ranks of a synchronous training need the same time for a step: the fast ranks wait in collectives for the slow rank.
So own time shows which rank is slow, and step times do not. Times are nanoseconds of any clock of this process. The
clocks of two machines are never compared.

The module imports nothing else of the agent, because the worker's Python may not find the package.
"""

from collections.abc import Callable

WINDOW = 4_000_000_000
"""Nanoseconds: own time is reported once in this time, for whole steps."""


class OwnTimeMeter:
    """The own time of one rank."""

    def __init__(self, publish: Callable[[int, int], None]) -> None:
        """`publish(own, wall)` is called at the end of each window, with its nanoseconds."""
        self._publish = publish
        self._since: int | None = None
        self._waited = 0
        self._waits = 0
        self._accounted = 0
        """Up to when waiting is added."""
        self._begun = 0
        """When the last collective began."""
        self._steps = False
        self._left_out = 0
        """Own time of this window that no other rank needs to have: a save is the work of one rank by design."""
        self._save: tuple[int, int] | None = None
        """When the save in progress began, and what was waited until then."""

    @property
    def saves(self) -> bool:
        """True while the script saves or loads."""
        return self._save is not None

    def save_begins(self, at: int) -> None:
        """The script saves or loads a checkpoint."""
        self._save = (at, self._waited)

    def save_ends(self, at: int) -> None:
        """The call has ended. What it waited for other ranks in between is no own time anyway."""
        if self._save is not None and self._since is not None:
            begun, waited = self._save
            self._left_out += max(at - max(begun, self._since) - max(self._waited - waited, 0), 0)
        self._save = None

    def begin(self, at: int) -> None:
        """A collective begins; the rank may go on computing meanwhile."""
        self._begun = at
        if self._since is None:
            self._since = at

    def waited(self, begun: int, ended: int) -> None:
        """The script has waited for a collective."""
        self._add(begun, ended)
        if not self._steps:
            self._close(ended)  # a script without an optimizer of torch has no other mark

    def step(self, at: int) -> None:
        """An optimizer's step begins: the gradients are there.

        DistributedDataParallel begins one all-reduce after another while it computes gradients, and waits for all after
        the last of them. Nothing but the begin of the last one is visible of this wait.
        """
        self._steps = True
        if self._since is None:
            return
        if self._begun > self._accounted:
            self._add(self._begun, at)
        self._close(at)

    def _add(self, begun: int, ended: int) -> None:
        begun = max(begun, self._accounted)
        self._accounted = max(ended, self._accounted)
        self._waited += max(ended - begun, 0)
        self._waits += 1

    def _close(self, at: int) -> None:
        """Report a window that is long enough."""
        if self._since is None or at - self._since < WINDOW or not self._waits:
            return
        wall = at - self._since
        self._publish(max(wall - self._waited - self._left_out, 0), wall)
        self._since, self._waited, self._waits, self._left_out = at, 0, 0, 0
