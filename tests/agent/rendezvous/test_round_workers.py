"""What one round's workers hand on to the next round's."""

import os
from pathlib import Path

import pytest

from pytorchjob_agent.contract.hang_rules import HangRules
from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.hangs.watch import History
from pytorchjob_agent.rendezvous.round_workers import RoundWorkers

PLACE = Assigned(RoundId(1, 1), 0, 1, 0, 1, "127.0.0.1", 29500, 0)


@pytest.mark.parametrize("reports", [False, True], ids=["never reported", "reported before"])
def test_a_first_step_is_waited_for_where_an_earlier_round_had_one(tmp_path: Path, reports: bool) -> None:
    workers = RoundWorkers(tmp_path, 1, HangRules(), None, History(reports))
    assert workers.history.reports is reports
    workers.begin({0: os.getpid()}, PLACE, lambda _: 0.0)
    verdict = workers.judge(float("inf"))
    assert (verdict is not None and verdict.reason == "no first step within 1200 s") is reports
    assert workers.history.reports is reports
    workers.close()
