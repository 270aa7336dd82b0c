"""What the search for hangs hands on from one round to the next."""

import os
import time
from pathlib import Path

import pytest

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.hangs.round_hangs import HANGS
from pytorchjob_agent.rendezvous.extension import Extension, OwnPod, RunningWorkers
from pytorchjob_agent.script.api import Script
from tests.agent.starting import starting

PLACE = Assigned(RoundId(1, 1), 0, 1, 0, 1, "127.0.0.1", 29500, 0)


def begin(hangs: Extension, directory: Path) -> Script:
    """Begin a round whose only worker is this process; returns its script."""
    hangs.variables(starting(directory, 1))
    hangs.begin(RunningWorkers({0: os.getpid()}, PLACE, lambda _: None))
    return Script(str(next(directory.glob("*.board"))))


@pytest.mark.parametrize("reports", [False, True], ids=["never reported", "reported before"])
def test_a_first_step_is_waited_for_where_an_earlier_round_had_one(tmp_path: Path, reports: bool) -> None:
    hangs = HANGS.create(OwnPod({}, "job", "127.0.0.1", 1))
    first = begin(hangs, tmp_path / "1")
    if reports:
        first.report(5, None, {})
    assert hangs.judge(time.monotonic()) is None  # noqa: TID251  the files have the same clock
    hangs.over(clean=False)
    begin(hangs, tmp_path / "2")
    verdict = hangs.judge(float("inf"))
    assert (verdict is not None and verdict.reason == "no first step within 1200 s") is reports


def test_between_two_rounds_nobody_hangs(tmp_path: Path) -> None:
    hangs = HANGS.create(OwnPod({}, "job", "127.0.0.1", 1))
    begin(hangs, tmp_path).report(5, None, {})
    hangs.over(clean=False)
    assert hangs.judge(float("inf")) is None
    assert not hangs.reads_lines


def test_rules_that_cannot_be_read_are_named() -> None:
    with pytest.raises(ContractError, match="PYTORCHJOB_HANG"):
        HANGS.create(OwnPod({"PYTORCHJOB_HANG": "no"}, "job", "127.0.0.1", 1))
