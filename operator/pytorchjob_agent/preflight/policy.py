"""Decides the severity of each problem by the user's variables: a warning, a failure, or nothing. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pytorchjob_agent.contract.environment import PREFLIGHT
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.preflight.checks import CHECKS, Check
from pytorchjob_agent.preflight.facts import Facts

OFF = "off"
_VERSIONS = "versions"
"""The check that needs all members: the coordinator compares their versions."""
_LONGEST = 600  # of one text: a path or an error may be of any length


class CheckLevel(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """One line of the table: what was found or is wrong, and the fix."""

    check: str
    level: CheckLevel
    found: str
    remedy: str = ""

    def sentence(self) -> str:
        """Return it as one line for a log."""
        return f"{self.check}: {self.found}. Fix: {self.remedy}" if self.remedy else f"{self.check}: {self.found}"


def variable(check: str) -> str:
    """Return the name of the variable that sets one check's severity."""
    return f"{PREFLIGHT}_{check.upper()}"


def levels(env: Mapping[str, str]) -> dict[str, str]:
    """Return the severity of each check; a check's own variable takes precedence over the one for all checks."""
    known = {variable(check.name): check for check in CHECKS}
    names = [*known, variable(_VERSIONS)]
    unknown = sorted(name for name in env if name.startswith(f"{PREFLIGHT}_") and name not in names)
    if unknown:
        raise ContractError(f"{unknown[0][:80]} is not a check: expected one of {', '.join(names)}")
    versions_level(env)
    everything = _setting(env, PREFLIGHT)
    return {check.name: _setting(env, name) or everything or _default(check) for name, check in known.items()}


def versions_level(env: Mapping[str, str]) -> str:
    """Return the severity of a version mismatch; OFF sends no versions. Raises ContractError."""
    return _setting(env, variable(_VERSIONS)) or _setting(env, PREFLIGHT) or CheckLevel.WARN


def _default(check: Check) -> str:
    return CheckLevel.FAIL if check.fatal else CheckLevel.WARN


def _setting(env: Mapping[str, str], name: str) -> str:
    text = env.get(name, "")
    if text not in ("", CheckLevel.WARN, CheckLevel.FAIL, OFF):
        raise ContractError(f"{name}: {text[:80]!r} is not a level: expected warn, fail or off")
    return text


def run_checks(facts: Facts) -> tuple[PreflightFinding, ...]:
    """Return the findings of all checks that are not off; a wrong variable of preflight's is a finding itself."""
    try:
        chosen = levels(facts.env)
    except ContractError as error:
        remedy = f"correct the variable, or remove it: see `{PREFLIGHT}` in docs/doctor.md"
        return (PreflightFinding(CHECKS[0].name, CheckLevel.FAIL, str(error), remedy),)
    return tuple(
        finding
        for check in CHECKS
        if chosen[check.name] != OFF
        for finding in _of(check, CheckLevel(chosen[check.name]), facts)
    )


def _of(check: Check, level: CheckLevel, facts: Facts) -> tuple[PreflightFinding, ...]:
    result = check.find(facts)
    if not result.problems:
        return (PreflightFinding(check.name, CheckLevel.OK, result.found[:_LONGEST]),)
    return tuple(
        PreflightFinding(check.name, level, problem.what[:_LONGEST], problem.remedy[:_LONGEST])
        for problem in result.problems
    )
