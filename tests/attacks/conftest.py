"""Prints at the end how soon a job beside each attack was answered."""

import pytest

from tests.attacks.bystander import FIGURES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("p99 of the answers to a bystander job")
    for attack, answers, milliseconds in FIGURES:
        terminalreporter.write_line(f"{milliseconds:9.1f} ms of {answers:5} answers  {attack}")
