"""The closing table: each attack, that it has failed, and what its bystander noticed.

ATTACK_KEEP=1 keeps the figures in benchmarks/attacks.jsonl and renews docs/attacks.md, if all attacks have failed.
"""

import os
from collections.abc import Generator
from dataclasses import asdict
from typing import Any

import pytest

from benchmarks import attacks
from benchmarks.attacks import FAILED, HEAD, SUCCEEDED, Attack
from benchmarks.table import load
from tests.attacks.bystander import FIGURES
from tests.lanes.summary import table

_PROPERTY, _MARKER = "bystander", "without_bystander"
_FOUND: dict[str, Attack] = {}
_PASSED = pytest.StashKey[bool]()
_LOAD = load()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the attack's figures to the last report of its test; an attack with neither figures nor a reason is none."""
    if call.when == "setup":
        FIGURES.clear()
    if call.when == "teardown" and (attack := _attack(item)) is not None:
        item.user_properties.append((_PROPERTY, asdict(attack)))
    report = yield
    if call.when == "call" and not report.skipped:
        item.stash[_PASSED] = report.passed
    if call.when == "teardown" and report.passed and item.stash.get(_PASSED, False) and not _complete(item):
        report.outcome, report.longrepr = "failed", "an attack has one bystander, or the marker with the reason"
    return report


def _complete(item: pytest.Item) -> bool:
    return len(FIGURES) == (0 if _reason(item) else 1)


def _reason(item: pytest.Item) -> pytest.Mark | None:
    return item.get_closest_marker(_MARKER)


def _attack(item: pytest.Item) -> Attack | None:
    """Return the attack that a test is; None: it did not run, or shows how an honest pod comes in."""
    if _PASSED not in item.stash:
        return None
    outcome, reason = FAILED if item.stash[_PASSED] else SUCCEEDED, _reason(item)
    if FIGURES:
        return Attack(item.nodeid, outcome, FIGURES[0].what, FIGURES[0].undisturbed, FIGURES[0].attacked)
    if reason is None:
        return Attack(item.nodeid, outcome, "not measured to the end")
    return Attack(item.nodeid, outcome, reason.args[0]) if reason.kwargs.get("attack", True) else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the figures, also those of another process."""
    properties: dict[str, Any] = dict(report.user_properties)
    if report.when == "teardown" and _PROPERTY in properties:
        _FOUND[report.nodeid] = Attack(**properties[_PROPERTY])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    if not _FOUND:
        return
    terminalreporter.section(f"{len(_FOUND)} attacks, and what a bystander noticed")
    rows = [attack.cells() for attack in _FOUND.values()]
    for line in table([HEAD, *((row[0].removeprefix("tests/attacks/"), *row[1:]) for row in rows)]):
        terminalreporter.write_line(line)
    if os.environ.get("ATTACK_KEEP"):
        _keep(terminalreporter, exitstatus)


def _keep(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    if exitstatus != pytest.ExitCode.OK:
        terminalreporter.write_line("not kept: not all tests have passed")
        return
    attacks.keep(_FOUND.values(), attacks.this_run(_LOAD))
    attacks.write()
    terminalreporter.write_line(f"kept in {attacks.RAW.name}; {attacks.PAGE.name} has the table")
