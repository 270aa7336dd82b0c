"""The hang rules: the limits in `spec.agent.hang` that decide when running workers count as hung. Pure.

The operator writes the JSON of `spec.agent.hang` unchanged into one variable, and the agent reads it here.
`hangs/judge` applies the rules.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from pytorchjob_agent.contract.reading import ContractError, ObjectReader

HANG = "PYTORCHJOB_HANG"
DEFAULT_FIRST_PROGRESS = 1200.0  # seconds: data is loaded and kernels are compiled before the first step
DEFAULT_IDLE = 120.0
"""Seconds without progress of any kind on all ranks of the job. Two minutes, so that a hang is over within three."""
_MOST_RULES = 16
_LONGEST = 256 * 1024
_LONGEST_PATTERN = 1024
_LONGEST_NAME = 63
_MOST_SECONDS = 30 * 86_400
_MOST_POINTS = 1000


class Comparison(StrEnum):
    """How a number from the log is compared with the rule's value."""

    LT = "lt"
    GT = "gt"
    LTEQ = "lteq"
    GTEQ = "gteq"
    EQ = "eq"


@dataclass(frozen=True, slots=True)
class LogRule:
    """One rule for the lines that workers print; times in seconds, 0: no limit."""

    name: str
    pattern: str
    start_seconds: float = 0.0  # time limit of the first match, from the start
    every_seconds: float = 0.0  # time limit of each further match, from the last one
    stop_pattern: str | None = None  # a line that matches it ends the rule
    operator: Comparison | None = None  # a match is bad if its first group compares so with `value`
    value: float = 0.0
    points: int = 1  # number of bad matches in a row that are a fault
    fault_on_match: bool = False

    @classmethod
    def from_dict(cls, where: str, data: object) -> Self:
        """Read one rule; `where` names it in errors."""
        fields = ObjectReader(where, data)
        operator = fields.short_text("operator", 8)
        if operator is not None and operator not in list(Comparison):
            raise fields.wrong("operator", operator, f"one of {', '.join(Comparison)}")
        pattern = _pattern(fields, "pattern", 1 if operator else 0)
        name = fields.short_text("name", _LONGEST_NAME)
        if pattern is None or name is None:
            raise ContractError(f"{where}: expected an object with a name and a pattern")
        if (operator is None) != ("value" not in fields):
            raise ContractError(f"{where}: operator and value go together: expected both or neither")
        return cls(
            name=name,
            pattern=pattern,
            start_seconds=_seconds(fields, "startSeconds") or 0.0,
            every_seconds=_seconds(fields, "everySeconds") or 0.0,
            stop_pattern=_pattern(fields, "stopPattern", 0),
            operator=None if operator is None else Comparison(operator),
            value=fields.number("value", -1e300, 1e300, "a number") or 0.0,
            points=int(fields.number("points", 1, _MOST_POINTS, f"a number from 1 to {_MOST_POINTS}") or 1),
            fault_on_match=fields.switch("faultOnMatch"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` reads."""
        data: dict[str, Any] = {"name": self.name, "pattern": self.pattern}
        data |= {"startSeconds": self.start_seconds} if self.start_seconds else {}
        data |= {"everySeconds": self.every_seconds} if self.every_seconds else {}
        data |= {"stopPattern": self.stop_pattern} if self.stop_pattern is not None else {}
        if self.operator is not None:
            data |= {"operator": self.operator.value, "value": self.value, "points": self.points}
        return data | ({"faultOnMatch": True} if self.fault_on_match else {})


@dataclass(frozen=True, slots=True)
class HangRules:
    """All rules of a job; limits in seconds, 0: no limit, None: not set."""

    progress_seconds: float | None = None  # None: derived from the pace of the steps so far
    first_progress_seconds: float | None = None  # None: DEFAULT_FIRST_PROGRESS, if the script is known to report
    idle_seconds: float | None = None  # None: DEFAULT_IDLE, where the agent is certain
    log_rules: tuple[LogRule, ...] = ()

    @property
    def first_limit(self) -> float:
        """Return how long the first step may take; 0: no limit."""
        return DEFAULT_FIRST_PROGRESS if self.first_progress_seconds is None else self.first_progress_seconds

    @property
    def still_limit(self) -> float:
        """Return how long all ranks may make no progress of any kind; 0: no limit."""
        return DEFAULT_IDLE if self.idle_seconds is None else self.idle_seconds

    @property
    def limits_silence(self) -> bool:
        """Return whether a rule limits the time between lines: then its author knows what the log of this job says."""
        return any(rule.start_seconds or rule.every_seconds for rule in self.log_rules)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read the variable; without it no rule is set."""
        return cls.from_json(env[HANG]) if env.get(HANG) else cls()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; raises ContractError."""
        if len(text) > _LONGEST:
            raise ContractError(f"{HANG}: {len(text)} characters: expected at most {_LONGEST}")
        fields = ObjectReader.parse(HANG, text)
        rules = fields.items("logRules", _MOST_RULES)
        return cls(
            progress_seconds=_seconds(fields, "progressSeconds"),
            first_progress_seconds=_seconds(fields, "firstProgressSeconds"),
            idle_seconds=_seconds(fields, "idleSeconds"),
            log_rules=tuple(LogRule.from_dict(f"{HANG}: logRules[{at}]", rule) for at, rule in enumerate(rules)),
        )

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        data: dict[str, Any] = {}
        data |= {"progressSeconds": self.progress_seconds} if self.progress_seconds is not None else {}
        data |= {"firstProgressSeconds": self.first_progress_seconds} if self.first_progress_seconds is not None else {}
        data |= {"idleSeconds": self.idle_seconds} if self.idle_seconds is not None else {}
        data |= {"logRules": [rule.to_dict() for rule in self.log_rules]} if self.log_rules else {}
        return json.dumps(data, separators=(",", ":"))


def _pattern(fields: ObjectReader, name: str, groups: int) -> str | None:
    """Return a regular expression with at least `groups` groups."""
    text = fields.short_text(name, _LONGEST_PATTERN)
    if text is None:
        return None
    try:
        found = re.compile(text).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise fields.wrong(name, text, f"a regular expression of Python's ({error})") from None
    if found < groups:
        raise fields.wrong(name, text, "a group around the number that is compared, like 'loss=([0-9.]+)'")
    return text


def _seconds(fields: ObjectReader, name: str) -> float | None:
    return fields.number(name, 0, _MOST_SECONDS, f"seconds from 0 (no limit) to {_MOST_SECONDS}")
