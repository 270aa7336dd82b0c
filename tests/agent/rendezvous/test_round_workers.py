"""What the agent asks of a round's workers, and what it reports of them."""

import os
import time
from pathlib import Path

import pytest

from pytorchjob_agent.contract.messages import Assigned, Checkpoint, RoundId, Save
from pytorchjob_agent.rendezvous.extension import Extensions
from pytorchjob_agent.rendezvous.round_workers import RoundWorkers
from pytorchjob_agent.script.api import Script

AGES = ("workers_age", "first_age", "step_age")
LATER = 1e9
"""A time that has not come on any clock of a machine that runs."""
PLACE = Assigned(RoundId(1, 1), 0, 1, 0, 1, "127.0.0.1", 29500, 0)


def script(tmp_path: Path) -> Script:
    """The script of the only worker, as it runs in its process."""
    return Script(str(next(tmp_path.glob("*.board"))))


def workers_of(tmp_path: Path) -> RoundWorkers:
    return RoundWorkers(tmp_path, 1, None, Extensions())


def test_a_script_saves_on_request_and_trains_on(tmp_path: Path) -> None:
    workers, training = workers_of(tmp_path), script(tmp_path)
    assert (training.checkpoint_requested(1), training.should_stop(1)) == (False, False)
    workers.request(None, Save(PLACE.round, 3, 60.0, "its node is cordoned"))
    assert (training.checkpoint_requested(1), training.should_stop(1)) == (True, False)
    assert workers.saved() == 0
    assert (training.checkpoint_requested(1), training.should_stop(1)) == (False, False)
    assert workers.saved() == 3
    assert not workers.asked
    workers.close()


def test_a_request_to_end_follows_one_to_save(tmp_path: Path) -> None:
    workers, training = workers_of(tmp_path), script(tmp_path)
    workers.request(None, Save(PLACE.round, 1, 60.0))
    assert (training.checkpoint_requested(1), training.should_stop(1)) == (True, False)
    workers.request(Checkpoint(PLACE.round, 2, 60.0), Save(PLACE.round, 1, 60.0))
    assert (training.checkpoint_requested(1), training.should_stop(1)) == (True, True)
    workers.close()


def test_a_script_that_does_not_poll_saves_nothing(tmp_path: Path) -> None:
    workers, training = workers_of(tmp_path), script(tmp_path)
    training.report(5, None, {})
    workers.request(None, Save(PLACE.round, 1, 60.0))
    assert (workers.saved(), workers.report(0.0)["saves_on_request"]) == (0, False)
    training.checkpoint_requested(1)
    assert workers.report(0.0)["saves_on_request"] is True
    workers.close()


def test_a_heartbeat_has_the_age_of_the_workers_and_of_their_steps(tmp_path: Path) -> None:
    workers, training = workers_of(tmp_path), script(tmp_path)
    assert not workers.report(LATER).keys() & {*AGES}
    workers.begin({0: os.getpid()}, PLACE, lambda _: 0.0, lambda: None, time.monotonic())  # noqa: TID251  the files have the same clock
    training.report(7, None, {})
    training.report(9, None, {})
    found, later = workers.report(LATER), workers.report(LATER + 5)
    assert found["first_step"] == 7
    assert [later[name] - found[name] for name in AGES] == pytest.approx([5, 5, 5])
    assert found["workers_age"] >= found["first_age"] >= found["step_age"] > 0
    workers.close()
