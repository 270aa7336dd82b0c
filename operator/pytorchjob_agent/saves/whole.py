"""Which save of several writers is whole: each member holds its part of it, and has copied it to peers.

Then no round starts from an older one, so its parts need no memory. Members publish in the round's store what they have
copied. Rank 0 compares, and publishes the newest save that all have in common.
"""

import json
from collections.abc import Callable

from pytorchjob_agent.rendezvous.published import Published
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.saves.held_saves import LABEL_LIMIT

_RECENT = 4
"""Labels that a member publishes: a faster one may have copied later saves already."""
_COPIED, _WHOLE = "copied", "whole"


class WholeSaves:
    """One member's part of it in one round. Each call may raise RuntimeError: the store is gone."""

    def __init__(self, connect: Callable[[], SignedStore]) -> None:
        """Connect to the round's store once there is something to say."""
        self._connect = connect
        self._copied: Published[list[str]] | None = None
        self._labels: list[str] = []

    def tell(self, label: str) -> None:
        """Publish that this member has copied its part of the save with this label, after all earlier ones."""
        self._labels = [*(each for each in self._labels if each != label), label][-_RECENT:]
        self._members().write(json.dumps(self._labels))

    def newest(self) -> str:
        """Return the label of the newest save that is whole; empty: none is."""
        copied = self._members()
        store = copied.store
        if store.assigned.rank == 0 and (label := newest_common(copied.read_whole(range(store.assigned.size)))):
            store.write(_WHOLE, label)
        known = store.read(_WHOLE, 0)
        return "" if known is None else known.value

    def _members(self) -> Published[list[str]]:
        if self._copied is None:
            self._copied = Published(self._connect(), _COPIED, _read)
        return self._copied


def newest_common(labels: list[list[str]]) -> str:
    """Return the last label of the first list that all lists have; empty: there is none. Pure."""
    if not labels:
        return ""
    common = {*labels[0]}.intersection(*labels[1:])
    return next((label for label in reversed(labels[0]) if label in common), "")


def _read(_: int, text: str) -> list[str]:
    """Read the labels that another member has published. Raises ValueError."""
    found = json.loads(text)
    if not (isinstance(found, list) and len(found) <= _RECENT):
        raise ValueError("not a list of labels")
    if not all(isinstance(label, str) and len(label) <= LABEL_LIMIT for label in found):
        raise ValueError("not a label")
    return found
