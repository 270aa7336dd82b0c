"""Rules that recognize a cause by the words of a message."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from pytorchjob.view.causes.cause import Cause


class TextRule(NamedTuple):
    """A text that has the pattern has the cause."""

    pattern: re.Pattern[str]
    cause: Cause


def rule(pattern: str, cause: Cause, flags: re.RegexFlag = re.MULTILINE) -> TextRule:
    """Return a rule; the empty pattern fits every text."""
    return TextRule(re.compile(pattern, flags), cause)


def first_cause(rules: Iterable[TextRule], text: str) -> tuple[Cause, dict[str, str]] | None:
    """Return the cause of the first rule that fits a text, and the values that its pattern names in the text."""
    for known in rules:
        if found := known.pattern.search(text):
            return known.cause, {key: value.strip() for key, value in found.groupdict().items() if value}
    return None
