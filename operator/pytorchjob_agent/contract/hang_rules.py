"""When workers that live are taken for stuck: what the job's author sets, as operator and agent both understand it.

Pure. The operator writes the JSON of `spec.agent.hang` as it is into one variable; fields keep their names there.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from pytorchjob_agent.contract.environment import ContractError

HANG = "PYTORCHJOB_HANG"
DEFAULT_FIRST_PROGRESS = 1200.0  # seconds: data is loaded and kernels are compiled before the first step
_MOST_RULES = 16
_LONGEST = 256 * 1024
_LONGEST_PATTERN = 1024
_LONGEST_NAME = 63
_MOST_SECONDS = 30 * 86_400
_MOST_POINTS = 1000


class Comparison(StrEnum):
    """How a number out of the log is compared with the rule's."""

    LT = "lt"
    GT = "gt"
    LTEQ = "lteq"
    GTEQ = "gteq"
    EQ = "eq"


@dataclass(frozen=True, slots=True)
class LogRule:
    """One thing that the workers' lines must say, or must not; times in seconds, 0: any time."""

    name: str
    pattern: str
    start_seconds: float = 0.0  # the first match must come within
    every_seconds: float = 0.0  # each further one must come within
    stop_pattern: str | None = None  # a line with this ends the rule
    operator: Comparison | None = None  # a match is bad if its first group is so to value
    value: float = 0.0
    points: int = 1  # so many bad ones in a row are a fault
    fault_on_match: bool = False

    @classmethod
    def from_dict(cls, where: str, data: object) -> Self:
        """Read one rule; `where` names it in errors."""
        fields = _Fields(where, data)
        operator = fields.text("operator", 8)
        if operator is not None and operator not in list(Comparison):
            raise fields.wrong("operator", operator, f"one of {', '.join(Comparison)}")
        pattern = fields.pattern("pattern", 1 if operator else 0)
        name = fields.text("name", _LONGEST_NAME)
        if pattern is None or name is None:
            raise ContractError(f"{where}: expected an object with a name and a pattern")
        if (operator is None) != ("value" not in fields.data):
            raise ContractError(f"{where}: operator and value go together: expected both or neither")
        return cls(
            name=name,
            pattern=pattern,
            start_seconds=fields.seconds("startSeconds") or 0.0,
            every_seconds=fields.seconds("everySeconds") or 0.0,
            stop_pattern=fields.pattern("stopPattern", 0),
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
    """All limits, in seconds; 0: no limit, None: not set."""

    progress_seconds: float | None = None  # None: by the pace of the steps so far
    first_progress_seconds: float | None = None  # None: DEFAULT_FIRST_PROGRESS, for scripts that are known to report
    idle_seconds: float = 0.0
    log_rules: tuple[LogRule, ...] = ()

    @property
    def first_limit(self) -> float:
        """Return how long the first step may take; 0: no limit."""
        return DEFAULT_FIRST_PROGRESS if self.first_progress_seconds is None else self.first_progress_seconds

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read the variable; without it everything is as if nothing were set."""
        return cls.from_json(env[HANG]) if env.get(HANG) else cls()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote, or an error that names the field, what is wrong and what would be right."""
        if len(text) > _LONGEST:
            raise ContractError(f"{HANG}: {len(text)} letters: expected at most {_LONGEST}")
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ContractError(f"{HANG}: {text[:80]!r} is not JSON: {error}") from None
        fields = _Fields(HANG, data)
        rules = fields.data.get("logRules", [])
        if not isinstance(rules, list) or len(rules) > _MOST_RULES:
            raise fields.wrong("logRules", rules, f"a list of at most {_MOST_RULES} rules")
        return cls(
            progress_seconds=fields.seconds("progressSeconds"),
            first_progress_seconds=fields.seconds("firstProgressSeconds"),
            idle_seconds=fields.seconds("idleSeconds") or 0.0,
            log_rules=tuple(LogRule.from_dict(f"{HANG}: logRules[{at}]", rule) for at, rule in enumerate(rules)),
        )

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        data: dict[str, Any] = {}
        data |= {"progressSeconds": self.progress_seconds} if self.progress_seconds is not None else {}
        data |= {"firstProgressSeconds": self.first_progress_seconds} if self.first_progress_seconds is not None else {}
        data |= {"idleSeconds": self.idle_seconds} if self.idle_seconds else {}
        data |= {"logRules": [rule.to_dict() for rule in self.log_rules]} if self.log_rules else {}
        return json.dumps(data, separators=(",", ":"))


class _Fields:
    """The fields of one object, each read with its check; those that a newer operator adds are left alone."""

    def __init__(self, where: str, data: object) -> None:
        if not isinstance(data, dict):
            raise ContractError(f"{where}: {str(data)[:80]!r} is not an object: expected {{...}}")
        self._where = where
        self.data: dict[str, Any] = {name: value for name, value in data.items() if value is not None}

    def wrong(self, name: str, value: object, expected: str) -> ContractError:
        return ContractError(f"{self._where}: {name}: {str(value)[:80]!r} is wrong: expected {expected}")

    def number(self, name: str, least: float, most: float, expected: str) -> float | None:
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(name, value, expected)
        return float(value)

    def seconds(self, name: str) -> float | None:
        return self.number(name, 0, _MOST_SECONDS, f"seconds from 0 (no limit) to {_MOST_SECONDS}")

    def text(self, name: str, longest: int) -> str | None:
        value = self.data.get(name)
        if value is not None and not (isinstance(value, str) and 0 < len(value) <= longest):
            raise self.wrong(name, value, f"a text of 1 to {longest} letters")
        return value

    def switch(self, name: str) -> bool:
        value = self.data.get(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def pattern(self, name: str, groups: int) -> str | None:
        text = self.text(name, _LONGEST_PATTERN)
        if text is None:
            return None
        try:
            found = re.compile(text).groups
        except (re.error, OverflowError, RecursionError) as error:
            raise self.wrong(name, text, f"a regular expression of Python's ({error})") from None
        if found < groups:
            raise self.wrong(name, text, "a group around the number that is compared, like 'loss=([0-9.]+)'")
        return text
