"""One decision in progress: names, and what it refuses."""

from dataclasses import replace

import pytest

from pytorchjob_operator.rounds.phases import Running
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import ExpectedPod
from tests.rounds.story import Job, running


@pytest.mark.parametrize(
    ("index", "name"),
    [
        pytest.param(0, "pod-0", id="of a member, as it was when it came"),
        pytest.param(1, "another", id="of a pod whose agent has not come"),
        pytest.param(2, "replica 2", id="of neither"),
    ],
)
def test_the_name_of_a_pod(index: int, name: str) -> None:
    job = Job(2)
    job.hello(0)
    job.expect({0: ExpectedPod("renamed"), 1: ExpectedPod("another")})
    assert job.state.pod_name(index) == name


def test_only_the_present_phase_can_change() -> None:
    """What was decided from an earlier one would undo what came after it."""
    transition = Transition(running(2).state, 0.0)
    earlier = transition.state.phase
    assert isinstance(earlier, Running)
    transition.update(earlier, replace(earlier, gathered_at=1.0))
    with pytest.raises(AssertionError, match="is not the present phase"):
        transition.update(earlier, replace(earlier, growing_since=1.0))


def test_at_first_there_is_nothing_to_do() -> None:
    transition = Transition(Job(2).state, 7.0)
    assert (transition.reason, transition.now, transition.commands, transition.events) == ("nothing to do", 7.0, [], [])
