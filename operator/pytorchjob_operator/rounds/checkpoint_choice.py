"""Which checkpoint a round starts with: the newest complete save in its members' memory or on durable storage. Pure.

A later round comes before an earlier one, because it started from the earlier one's choice. Within a round the saves of
the lowest rank count: other ranks may write logs and the like. Of a save with several writers every part must be held,
or be on durable storage. A save that a member reports as durable is complete: the member has seen all of its parts.
"""

from collections.abc import Sequence

from pytorchjob_agent.contract.held_saves import choice_of, complete
from pytorchjob_operator.rounds.values import Member


def choose(members: Sequence[Member]) -> str:
    """Return the id of the save that all members of a new round start with; empty if there is none."""
    held = {save.id: save for member in members for save in member.held}
    durable = {choice_of(save) for member in members for save in member.durable}
    parts = {each for member in members for each in member.parts}
    found = max([*complete(held.values(), parts), *durable], key=lambda choice: choice.age, default=None)
    return "" if found is None else found.to_text()
