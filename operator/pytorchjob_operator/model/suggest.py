"""Suggestions for a misspelled word. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches

_CLOSE = 0.6
"""How similar two words must be, from 0 to 1; upper and lower case do not count."""


def nearest(word: object, choices: Iterable[object]) -> str:
    """Return the choice that is closest to the word; empty if no choice is close."""
    known = {str(choice).casefold(): str(choice) for choice in choices if choice}
    found = get_close_matches(str(word).strip().casefold(), known, n=1, cutoff=_CLOSE)
    return known[found[0]] if found else ""


def did_you_mean(word: object, choices: Iterable[object]) -> str:
    """Return `; did you mean X?` for the end of a message; empty if no choice is close."""
    found = nearest(word, choices)
    return f"; did you mean {found}?" if found else ""
