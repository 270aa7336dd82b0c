"""Which save a member copies to the durable directory next. Pure.

Rank 0 chooses for all, so that the parts of several writers are of one save, and announces its choice.
"""

from dataclasses import dataclass

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.saves.held_saves import Choice, HeldSave, choice_of

_ADOPTED = 0
"""The term of a save that lies in the durable directory already: an earlier job wrote it."""


@dataclass(frozen=True, slots=True)
class DrainView:
    """What a member knows when it chooses."""

    round: RoundId
    rank: int
    members: int
    newest: HeldSave | None
    """The newest save of its own workers in this round."""
    base: Choice | None
    """The save with which the round started."""
    announced: Choice | None
    """What rank 0 has announced last in this round."""
    due: bool
    """Whether the interval is over."""
    final: bool
    """Whether this member ends: its newest save counts, whatever was announced."""


def choose(view: DrainView) -> Choice | None:
    """Return the save of which this member copies its parts now; None: nothing."""
    own = None if view.newest is None else choice_of(view.newest)
    base = None if view.base is None or view.base.round.term == _ADOPTED else view.base
    if view.final:
        return own or base
    if view.rank == 0:
        return (own or base) if view.due else None
    if view.announced is not None and (view.announced.writers > 1 or view.announced.round == view.round):
        return view.announced
    if view.due and own is not None and own.writers == 1:
        return own
    return view.announced


def owners(choice: Choice, rank: int, members: int) -> tuple[int, ...]:
    """Return the ranks, in the save's round, whose parts this member copies: each part has a member that does."""
    return tuple(owner for owner in choice.owners if owner % members == rank)
