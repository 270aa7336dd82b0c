"""The checks before the first rendezvous of `run`: it logs each warning, and raises if a check fails.

It contacts nothing outside this pod: the wait for the rendezvous endpoint follows, with its own messages.
"""

import os
from collections.abc import Callable, Mapping, Sequence

from pytorchjob_agent.preflight import devices, read_facts
from pytorchjob_agent.preflight.facts import RunRequest, Torch
from pytorchjob_agent.preflight.policy import CheckLevel, PreflightFinding, levels, run_checks
from pytorchjob_agent.system.console import say


class PreflightError(Exception):
    """This member cannot take part; the message has each problem and its fix."""


def check(
    request: RunRequest, env: Mapping[str, str] = os.environ, read_torch: Callable[[], Torch] = devices.read_torch
) -> None:
    """Read the facts, run the checks, report the findings; raises PreflightError if a check fails."""
    if not any(level != "off" for level in levels(env).values()):
        return
    act(run_checks(read_facts.facts(request, env, read_torch)))


def act(findings: Sequence[PreflightFinding]) -> None:
    """Print the warnings and raise all failures in one error."""
    for finding in findings:
        if finding.level == CheckLevel.WARN:
            say(f"warning: {finding.sentence()}")
    failures = [finding.sentence() for finding in findings if finding.level == CheckLevel.FAIL]
    if failures:
        raise PreflightError("; ".join(failures))
