"""What the coordinator knows of checkpoints: the zone of each member, and why members keep none."""

from pytorchjob_agent.contract.messages import Heartbeat
from tests.rounds.story import Job, expected, running


def test_each_member_of_a_round_receives_its_zone() -> None:
    job = Job(2)
    job.expect({0: expected(0, zone="eu-1a"), 1: expected(1)})
    job.waits(0, 1)
    assert [job.assigned(index).zone for index in range(2)] == ["eu-1a", ""]


def test_a_member_without_checkpoints_is_a_problem_of_the_job_until_it_keeps_them_again() -> None:
    job = running(2)
    job.says(0, Heartbeat(checkpoint_problem="the memory is full"))
    assert job.problem("CheckpointsNotKept") == "pod-0: the memory is full"
    job.says(1, Heartbeat(checkpoint_problem="no room either"))
    assert job.problem("CheckpointsNotKept") == "pod-0: the memory is full (and 1 more)"
    job.says(0, Heartbeat())
    assert job.problem("CheckpointsNotKept") == "pod-1: no room either"
    job.says(1, Heartbeat())
    assert job.problem("CheckpointsNotKept") is None
    assert [event.partition(":")[0] for event in job.events].count("CheckpointsNotKept") == 1
