"""Which saves an agent keeps, and which of them go when memory is short. Pure.

Of a single writer the newest two stay. A save of several writers is of use only once each of its parts is there, which
a member hears later. So parts of more saves stay, and before all others those of the newest save that is known to be
whole: the one that members have told each other, or else the one with which the round has started.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.saves.held_saves import Choice, HeldSave, SaveId, complete

KEPT, _KEPT_PARTS = 2, 4
"""The newest saves of each owner that are kept: of a single writer, and of several writers in the present round."""


@dataclass(frozen=True, slots=True)
class Known:
    """What an agent knows of the saves of all members."""

    round: RoundId | None = None
    """The present one."""
    chosen: Choice | None = None
    """The save with which it has started."""
    whole: str = ""
    """The label of the newest save of this round that all writers have copied. Empty: none, or not known."""

    def is_chosen(self, save: HeldSave) -> bool:
        """Return whether it is a part of the save with which the round has started."""
        return self.chosen is not None and self.chosen.includes(save)

    def is_whole(self, save: HeldSave) -> bool:
        """Return whether it is a part of the newest save of several writers that is known to be whole."""
        if save.writers == 1:
            return False
        return (save.id.round == self.round and save.label == self.whole) if self.whole else self.is_chosen(save)


def needed(held: Collection[HeldSave], known: Known) -> set[SaveId]:
    """Return the saves to keep.

    What earlier rounds left unfinished replaces no save with which a round has started. A rank may save again before
    its copy of another rank's part has come, so the newest save that is whole here alone stays too. Of several parts
    with one label the newest counts.
    """
    whole = max(complete(held), key=lambda choice: choice.age, default=None)
    found = set() if whole is None else {save.id for save in held if whole.includes(save)}
    kept: dict[int, list[object]] = {}
    own = Counter[int]()
    for save in sorted(held, key=lambda save: save.id, reverse=True):
        parts = kept.setdefault(save.id.owner, [])
        name = save.id if save.writers == 1 else (save.id.round, save.label)
        if name in parts:
            found.discard(save.id)
            continue
        parts.append(name)
        new = save.id.round == known.round
        own[save.id.owner] += new
        newest = len(parts) <= (_KEPT_PARTS if new and save.writers > 1 else KEPT)
        if newest or known.is_whole(save) or (known.is_chosen(save) and own[save.id.owner] < KEPT):
            found.add(save.id)
    return found


def spare(held: Collection[HeldSave], known: Known) -> list[SaveId]:
    """Return the saves that go when memory is short, the first one first.

    Of each owner one stays: its part of the save that is known to be whole, or else its newest.
    """
    stays: dict[int, HeldSave] = {}
    for save in sorted(held, key=lambda save: (known.is_whole(save), save.id)):
        stays[save.id.owner] = save
    rest = [save for save in held if stays[save.id.owner] is not save]
    return [save.id for save in sorted(rest, key=lambda save: (known.is_chosen(save), save.id.round, save.id.number))]


def before_whole(held: Iterable[HeldSave], known: Known) -> list[SaveId]:
    """Return the parts that their owners wrote before that of the whole save: no round starts with them any more."""
    parts = [save for save in held if save.writers > 1]
    whole = {save.id.owner: save.id for save in sorted(parts, key=lambda save: save.id) if known.is_whole(save)}
    return [save.id for save in parts if save.id < whole.get(save.id.owner, save.id)]
