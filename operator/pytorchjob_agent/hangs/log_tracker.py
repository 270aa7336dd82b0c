"""Matches the workers' lines with the author's log rules, and keeps only what a verdict needs.

Pure: the time of a line comes with it. `judge` decides whether a line is late.
"""

import re
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt

from pytorchjob_agent.contract.hang_rules import Comparison, LogRule

LONGEST_LINE = 4096  # bytes that are searched, which bounds what a slow expression can cost
_LONGEST_QUOTE = 200
_COMPARE = {Comparison.LT: lt, Comparison.GT: gt, Comparison.LTEQ: le, Comparison.GTEQ: ge, Comparison.EQ: eq}


@dataclass(frozen=True, slots=True)
class LogEvidence:
    """What one rule has found; `bad` is the largest number of bad matches in a row of any worker."""

    rule: LogRule
    first: float | None = None
    last: float | None = None
    line: str = ""  # the newest match
    bad: int = 0
    fault: bool = False
    over: bool = False


class RuleTracker:
    """One rule and what it has found in one round."""

    def __init__(self, rule: LogRule) -> None:
        """Compile its expressions, which were checked when the rule was read."""
        self._rule = rule
        self._pattern = re.compile(rule.pattern)
        self._stop = None if rule.stop_pattern is None else re.compile(rule.stop_pattern)
        self._first: float | None = None
        self._last: float | None = None
        self._line = ""
        self._bad: dict[int, int] = {}
        self._fault = self._over = False

    def take(self, local_rank: int, line: str, now: float) -> None:
        """Match one line of a worker."""
        if self._over or self._fault:
            return
        if self._stop is not None and self._stop.search(line):
            self._over = True
            return
        match = self._pattern.search(line)
        if match is None:
            return
        self._first = now if self._first is None else self._first
        self._last, self._line = now, line[:_LONGEST_QUOTE]
        self._fault = self._rule.fault_on_match
        if self._rule.operator is not None:
            worse = _is_bad(self._rule, match[1])
            self._bad[local_rank] = self._bad.get(local_rank, 0) + 1 if worse else 0

    def seen(self) -> LogEvidence:
        """Return the findings so far."""
        bad = max(self._bad.values(), default=0)
        return LogEvidence(self._rule, self._first, self._last, self._line, bad, self._fault, self._over)


def _is_bad(rule: LogRule, text: str | None) -> bool:
    """Return whether the number breaks the rule; `nan` always does, a text that is not a number never does."""
    try:
        number = float(text or "")
    except ValueError:
        return False
    if number != number:
        return True
    return rule.operator is not None and _COMPARE[rule.operator](number, rule.value)
