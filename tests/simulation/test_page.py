"""The shell block of README.md in this folder."""

import re

import pytest

from tests.shell.blocks import ROOT
from tests.shell.following import follow, run_by
from tests.shell.register import SIMULATED


@pytest.mark.long
@pytest.mark.timeout(2500)
def test_the_page_runs_schedules_and_replays_one() -> None:
    [key] = run_by(SIMULATED)
    printed = follow(key, ROOT, seconds=2400, PYTHONPATH=str(ROOT / "operator"))
    runs = re.findall(r"^(\d+) schedules in .*, (\d+) failed$", printed, re.MULTILINE)
    assert runs == [("5000", "0"), ("1000", "0")]
    _, trace, with_messages, _ = re.split(r"^(?:1000 schedules in .*|seed 17: ok)$", printed, flags=re.MULTILINE)
    assert "begins round" in trace
    assert (" sends {" in trace, " sends {" in with_messages) == (False, True)
