"""Pods that may be lost soon: they are reported once, and the workers save once, while training continues."""

from pytorchjob_agent.contract.messages import Heartbeat, RoundId, Save
from pytorchjob_operator.rounds.threats import ANSWER_SECONDS, PAUSE_SECONDS
from tests.rounds.story import Job, another_leader, expected, running, stopped

CORDONED = "its node n1 is cordoned"
UNTIL_WORTH_IT = PAUSE_SECONDS + 1


def training(**beat: object) -> Job:
    """Three members whose script polls for requests, and that have trained for a while."""
    job = running(3)
    job.passes(UNTIL_WORTH_IT, saves_on_request=True, cooperative=True, **beat)
    return job


def threaten(job: Job, **threats: str) -> None:
    """The operator's next pass: these pods are threatened, and no others."""
    job.expect({index: expected(index, threat=threats.get(f"pod_{index}", "")) for index in job.pods})


def saves(job: Job, index: int) -> list[Save]:
    return [message for message in job.told[index] if isinstance(message, Save)]


def warnings(job: Job) -> list[str]:
    return [event for event in job.events if event.startswith("PodThreatened")]


def saved(job: Job) -> list[str]:
    return [event for event in job.events if event.startswith("CheckpointSaved")]


def test_all_workers_of_the_round_are_asked_at_once_and_train_on() -> None:
    job = training()
    first = job.round
    threaten(job, pod_1=CORDONED)
    assert [[save.number for save in saves(job, index)] for index in range(3)] == [[1], [1], [1]]
    assert saves(job, 0)[0].reason == f"pod-1: {CORDONED}"
    job.passes(20, saves_on_request=True, answered=1)
    assert (job.runs, job.round) == (True, first)


def test_the_event_names_the_pod_its_node_and_what_is_done() -> None:
    job = training()
    threaten(job, pod_1=CORDONED)
    assert warnings(job) == [f"PodThreatened: pod-1: {CORDONED}. The workers are asked to save at once, and continue."]


def test_a_threat_is_reported_once_and_costs_a_single_save() -> None:
    job = training()
    for _ in range(3):
        threaten(job, pod_1=CORDONED)
        job.passes(UNTIL_WORTH_IT, saves_on_request=True, answered=1)
    assert (len(warnings(job)), len(saves(job, 0))) == (1, 1)


def test_another_event_reports_that_all_have_saved() -> None:
    job = training()
    threaten(job, pod_1=CORDONED)
    for index in range(3):
        assert saved(job) == []
        job.says(index, Heartbeat(saves_on_request=True, answered=1))
        job.passes(1, silent=range(3))
    assert saved(job) == [f"CheckpointSaved: The workers have saved, and training continues: pod-1: {CORDONED}"]


def test_threats_that_follow_each_other_share_a_request() -> None:
    job = training()
    threaten(job, pod_1=CORDONED)
    threaten(job, pod_0=CORDONED, pod_1=CORDONED)
    job.passes(2, saves_on_request=True, answered=1)
    threaten(job, pod_0=CORDONED, pod_1=CORDONED, pod_2=CORDONED)
    assert len(saves(job, 0)) == 1
    job.passes(UNTIL_WORTH_IT, saves_on_request=True, answered=1)
    assert [save.number for save in saves(job, 0)] == [1, 2]
    assert saves(job, 0)[1].reason == f"pod-0: {CORDONED}; pod-2: {CORDONED}"


def test_a_threat_that_returns_is_a_new_threat() -> None:
    job = training()
    for _ in range(2):
        threaten(job, pod_1=CORDONED)
        job.passes(UNTIL_WORTH_IT, saves_on_request=True, answered=2)
        threaten(job)
    assert (len(warnings(job)), len(saves(job, 0))) == (2, 2)


def test_many_pods_share_an_event() -> None:
    job = running(6)
    threaten(job, **{f"pod_{index}": CORDONED for index in range(6)})
    assert len(warnings(job)) == 1
    assert "(and 3 more pods)" in warnings(job)[0]


def test_a_script_that_does_not_poll_is_asked_for_nothing() -> None:
    job = running(3)
    job.passes(UNTIL_WORTH_IT)
    threaten(job, pod_1=CORDONED)
    job.passes(UNTIL_WORTH_IT)
    assert [saves(job, index) for index in range(3)] == [[], [], []]
    assert "does not poll for requests to save" in warnings(job)[0]


def test_only_agents_that_know_such_requests_receive_them() -> None:
    job = running(3)
    job.passes(UNTIL_WORTH_IT, cooperative=True)
    job.says(0, Heartbeat(saves_on_request=True, cooperative=True))
    threaten(job, pod_1=CORDONED)
    assert [len(saves(job, index)) for index in range(3)] == [1, 0, 0]


def test_no_member_is_asked_before_the_script_has_polled_on_all_members() -> None:
    job = running(3)
    job.passes(UNTIL_WORTH_IT)
    job.says(0, Heartbeat(saves_on_request=True, cooperative=True))
    threaten(job, pod_1=CORDONED)
    assert saves(job, 0) == []
    job.passes(2, saves_on_request=True, cooperative=True)
    assert [len(saves(job, index)) for index in range(3)] == [1, 1, 1]


def test_a_script_that_polls_late_is_asked_then() -> None:
    job = running(3)
    job.passes(UNTIL_WORTH_IT)
    threaten(job, pod_1=CORDONED)
    job.passes(2, saves_on_request=True)
    assert len(saves(job, 0)) == 1


def test_a_round_has_something_to_save_from_its_first_step_on() -> None:
    job = running(3)
    job.passes(1, saves_on_request=True)
    threaten(job, pod_1=CORDONED)
    assert saves(job, 0) == []
    job.passes(1, saves_on_request=True, step=5)
    assert len(saves(job, 0)) == 1


def test_a_round_that_shows_no_step_is_asked_a_little_later() -> None:
    job = running(3)
    job.passes(1, saves_on_request=True)
    threaten(job, pod_1=CORDONED)
    assert saves(job, 0) == []
    job.passes(PAUSE_SECONDS, saves_on_request=True)
    assert len(saves(job, 0)) == 1


def test_a_round_that_ends_before_the_answer_leaves_the_threat_to_the_next_round() -> None:
    job = training()
    threaten(job, pod_1=CORDONED)
    job.fails(0)
    job.joins(0)
    stopped(job, 1, 2)
    job.passes(5)
    assert job.runs
    assert saved(job) == []
    job.passes(UNTIL_WORTH_IT, saves_on_request=True)
    assert [save.number for save in saves(job, 0)] == [1, 2]
    assert len(warnings(job)) == 1


def test_a_pod_that_waits_beside_the_round_is_reported_and_nothing_is_saved_for_it() -> None:
    job = running(3, min_members=2, max_members=2)
    job.passes(UNTIL_WORTH_IT, saves_on_request=True)
    spare = next(index for index in range(3) if index not in job.ranks)
    threaten(job, **{f"pod_{spare}": CORDONED})
    job.passes(UNTIL_WORTH_IT, saves_on_request=True)
    assert len(warnings(job)) == 1
    assert all(saves(job, index) == [] for index in range(3))


def test_a_pod_that_terminates_is_saved_for_by_its_own_request() -> None:
    job = training()
    job.goes(1)
    threaten(job, pod_1=CORDONED)
    assert "save already" in warnings(job)[0]
    assert saves(job, 0) == []
    assert "checkpoint" in job.kinds(0)


def test_a_member_that_connects_again_hears_the_request_again() -> None:
    job = training()
    threaten(job, pod_1=CORDONED)
    job.breaks(2)
    job.hello(2, round=job.round, rank=2, size=3)
    assert [save.number for save in saves(job, 2)] == [1]


def test_a_request_without_an_answer_is_given_up_and_the_next_threat_asks_again() -> None:
    job = training()
    threaten(job, pod_1=CORDONED)
    job.passes(ANSWER_SECONDS + 1, saves_on_request=True)
    assert saved(job) == []
    threaten(job, pod_1=CORDONED, pod_2=CORDONED)
    assert [save.number for save in saves(job, 0)] == [1, 2]


def test_another_leader_asks_again_with_a_higher_number() -> None:
    job = training()
    threaten(job, pod_1=CORDONED)
    job.passes(2, saves_on_request=True, answered=1)
    after = another_leader(job)
    for index in range(3):
        after.hello(index, round=RoundId(1, 1), rank=index, size=3)
    after.passes(2, saves_on_request=True, answered=1)
    assert [save.number for save in saves(after, 0)] == [2]


def test_a_threat_that_is_over_before_the_script_polls_costs_no_save() -> None:
    job = running(3)
    job.passes(UNTIL_WORTH_IT)
    threaten(job, pod_1=CORDONED)
    threaten(job)
    job.passes(2, saves_on_request=True)
    assert saves(job, 0) == []


def test_a_pod_that_has_succeeded_is_not_threatened() -> None:
    job = training()
    job.expect({**job.pods, 1: expected(1, threat=CORDONED, succeeded=True)})
    assert (warnings(job), saves(job, 0)) == ([], [])


def test_a_job_that_is_over_reports_no_threat() -> None:
    job = training()
    for index in range(3):
        job.ends(index)
    threaten(job, pod_1=CORDONED)
    assert job.end is not None
    assert warnings(job) == []
