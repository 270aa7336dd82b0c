"""What the coordinator keeps of a heartbeat, and when it answers."""

import pytest

from pytorchjob_agent.contract.messages import HEARTBEAT_REPLY_SECONDS, Heartbeat
from pytorchjob_operator.rounds.values import Member, ShownProgress
from tests.rounds.story import Job, running


def heartbeat(job: Job, seconds: float, **progress: object) -> Member:
    """Let time pass, send a heartbeat of member 0, and return the member as the coordinator knows it."""
    job.now += seconds
    job.says(0, Heartbeat(**progress))  # type: ignore[arg-type]
    return job.state.members[0]


def test_progress_is_kept_and_a_heartbeat_without_a_step_changes_no_step() -> None:
    job = running(2)
    first = heartbeat(job, 1, step=5, total=100, metrics={"loss": 0.5})
    assert (first.step, first.total, first.metrics) == (5, 100, {"loss": 0.5})
    second = heartbeat(job, 1, metrics={"loss": 0.4})
    assert (second.step, second.metrics) == (5, {"loss": 0.4})


def test_what_is_only_shown_decides_nothing() -> None:
    job = running(2)
    found = heartbeat(job, 1, shown_step=5, shown_total=10, percent=50, remaining=7, rate=0.5, metrics={"loss": 0.4})
    assert found.shown == ShownProgress(5, 10, 50, 7, 0.5)
    assert (found.step, found.total) == (None, None)
    assert job.state.round is not None
    assert job.state.round.first_step is None
    assert job.state.round.shows


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        ({}, False),
        ({"step": 0}, True),
        ({"shown_step": 0}, True),
        ({"percent": 0}, True),
        ({"metrics": {"loss": 0.5}}, True),
        ({"rate": 1.0, "remaining": 5, "total": 9}, False),
    ],
    ids=str,
)
def test_a_round_shows_progress_from_the_first_report_of_any_kind(progress: dict[str, object], expected: bool) -> None:
    job = running(2)
    heartbeat(job, 1, **progress)
    assert job.state.round is not None
    assert job.state.round.shows is expected


def test_the_first_step_of_a_round_stays() -> None:
    job = running(2)
    for step in (None, 5, 9):
        heartbeat(job, 1, step=step)
    assert job.state.round is not None
    assert job.state.round.first_step == 5


def test_the_coordinator_answers_again_after_its_reply_interval() -> None:
    job = running(2)
    answered = heartbeat(job, 100).replied_at
    assert answered == job.now
    assert heartbeat(job, HEARTBEAT_REPLY_SECONDS - 1).replied_at == answered
    assert heartbeat(job, 1).replied_at == job.now
