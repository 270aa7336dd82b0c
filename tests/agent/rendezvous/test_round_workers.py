"""What one round's workers hand on to the next round's."""

import os
from pathlib import Path

import pytest

from pytorchjob_agent.contract.hang_rules import HangRules
from pytorchjob_agent.rendezvous.round_workers import Crew


@pytest.mark.parametrize("reports", [False, True], ids=["never reported", "reported before"])
def test_a_first_step_is_waited_for_where_an_earlier_round_had_one(tmp_path: Path, reports: bool) -> None:
    crew = Crew(tmp_path, 1, HangRules(), None, reports=reports)
    assert crew.reports is reports
    crew.begin({0: os.getpid()}, leads=True)
    verdict = crew.look(float("inf"))
    assert (verdict is not None and verdict.reason == "no first step within 1200 s") is reports
    assert crew.reports is reports
    crew.close()
