"""Events of single pods: exit codes and problems, once for each pod, and one event for many pods."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator.model import ConditionType, JobStatus
from pytorchjob_operator.names import LossCause
from pytorchjob_operator.observed import Pod, PodPhase, ReportedEvent
from pytorchjob_operator.plan import Plan, make_plan
from pytorchjob_operator.problem import PodProblem
from tests.factories import condition, make_job, make_pod, make_template, observed

RUN, BAD, PENDING = PodPhase.RUNNING, PodPhase.FAILED, PodPhase.PENDING
PULL = PodProblem("ImagePullBackOff", "no such image", "container pytorch waiting")
NO_ROOM = PodProblem("Unschedulable", "0/3 nodes are available", "condition")
GATED = PodProblem("SchedulingGated", "held by the scheduling gates kueue", "condition")
RUNNING = JobStatus(conditions=(condition(ConditionType.CREATED), condition(ConditionType.RUNNING)))
COUNTED = JobStatus(conditions=(condition(ConditionType.RESTARTING),), restarts=1, replacing=("uid-worker-0",))


def plan_for(*pods: Pod, reported: Iterable[ReportedEvent] = (), **job: Any) -> Plan:
    """The plan for a job with a worker for each pod."""
    given = make_job(**{"master": None, "workers": len(pods) or 1, **job})
    return make_plan(replace(observed(given, *pods), reported=frozenset(reported)))


def stuck_pods(count: int, problem: PodProblem = PULL, first: int = 0) -> list[Pod]:
    return [make_pod(f"worker-{index}", PENDING, problem=problem) for index in range(first, first + count)]


def events_of(plan: Plan) -> list[tuple[str, str, str]]:
    return [(event.type.value, event.reason, event.message) for event in plan.pod_events]


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(make_pod("worker-0"), [], id="all is well"),
        pytest.param(make_pod("worker-0", PodPhase.SUCCEEDED, exit_code=0), [], id="a good end needs no words"),
        pytest.param(
            make_pod("worker-0", BAD, exit_code=3, cause=LossCause.ERROR),
            [("Normal", "ExitedWithCode", "Pod: ns.x-worker-0 exited with code 3")],
            id="an exit code, in v1's words",
        ),
        pytest.param(
            make_pod("worker-0", BAD, exit_code=137, cause=LossCause.OOM_KILLED),
            [("Normal", "ExitedWithCode", "Pod: ns.x-worker-0 exited with code 137 (OOMKilled)")],
            id="what the code does not say is added",
        ),
        pytest.param(
            make_pod("worker-0", BAD, exit_code=143, cause=LossCause.SIGNAL),
            [("Normal", "ExitedWithCode", "Pod: ns.x-worker-0 exited with code 143 (it was asked to stop)")],
            id="what an agent means by a code",
        ),
        pytest.param(
            make_pod("worker-0", BAD, exit_code=143, cause=LossCause.SIGNAL, without_coordinator=True),
            [("Normal", "ExitedWithCode", "Pod: ns.x-worker-0 exited with code 143")],
            id="but not where no agent is",
        ),
        pytest.param(
            make_pod("worker-0", PENDING, problem=PULL),
            [
                (
                    "Warning",
                    "ImagePullBackOff",
                    "Error pod x-worker-0 container pytorch waiting message: no such image",
                )
            ],
            id="a trouble, in v1's words",
        ),
        pytest.param(
            make_pod("worker-0", PENDING, problem=NO_ROOM),
            [("Warning", "Unschedulable", "Error pod x-worker-0 condition message: 0/3 nodes are available")],
            id="the scheduler's words",
        ),
        pytest.param(
            make_pod("worker-0", PENDING, problem=GATED),
            [
                (
                    "Normal",
                    "SchedulingGated",
                    "Error pod x-worker-0 condition message: held by the scheduling gates kueue",
                )
            ],
            id="a gate is somebody's will and no warning",
        ),
        pytest.param(make_pod("worker-0", RUN, deleting=True, exit_code=143), [], id="a pod that is told to go"),
    ],
)
def test_a_pods_news(pod: Pod, expected: list[tuple[str, str, str]]) -> None:
    assert events_of(plan_for(pod)) == expected


def test_nothing_is_told_twice() -> None:
    pods = (make_pod("worker-0", BAD, exit_code=3), *stuck_pods(1, first=1))
    first = plan_for(*pods)
    assert [reason for _, reason, _ in events_of(first)] == ["ExitedWithCode", "ImagePullBackOff"]
    assert first.reported == {("uid-worker-0", "ExitedWithCode"), ("uid-worker-1", "ImagePullBackOff")}
    second = plan_for(*pods, reported=first.reported)
    assert (events_of(second), second.reported) == ([], first.reported)


def test_a_new_trouble_of_the_same_pod_is_told() -> None:
    assert events_of(plan_for(*stuck_pods(1), reported=[("uid-worker-0", "Unschedulable")]))


def test_a_pod_that_is_gone_is_forgotten() -> None:
    assert plan_for(make_pod("worker-0"), reported=[("uid-of-another", "ImagePullBackOff")]).reported == frozenset()


def test_a_thousand_pods_of_the_same_trouble_make_one_event_that_names_a_few() -> None:
    ((_, reason, message),) = events_of(plan_for(*stuck_pods(1000)))
    named = "".join(f"x-worker-{index}, " for index in range(1, 8))
    assert (reason, message) == (
        "ImagePullBackOff",
        f"Error pod x-worker-0 container pytorch waiting message: no such image (and 999 more: {named}...)",
    )


def test_eight_pods_are_all_named() -> None:
    ((_, _, message),) = events_of(plan_for(*stuck_pods(8)))
    assert message.endswith(f" (and 7 more: {', '.join(f'x-worker-{index}' for index in range(1, 8))})")


@pytest.mark.parametrize(
    ("before", "new", "events"),
    [
        pytest.param(7, 1, 1, id="the eighth pod is reported at once"),
        pytest.param(8, 1, 0, id="the ninth waits for others"),
        pytest.param(8, 7, 0, id="seven are too few"),
        pytest.param(8, 8, 1, id="as many as were reported before"),
    ],
)
def test_after_the_first_pods_an_event_waits_for_as_many_more(before: int, new: int, events: int) -> None:
    reported = [(f"uid-worker-{index}", "ImagePullBackOff") for index in range(before)]
    plan = plan_for(*stuck_pods(before + new), reported=reported)
    assert len(events_of(plan)) == events
    assert len(plan.reported) == before + events * new


def test_a_thousand_pods_that_fail_one_after_the_other_make_few_events() -> None:
    reported, events = frozenset[ReportedEvent](), 0
    for count in range(1, 1001, 5):
        plan = plan_for(*stuck_pods(count), reported=reported)
        reported, events = plan.reported, events + len(plan.pod_events)
    assert events <= 15
    assert len(reported) > 500


def test_pods_of_different_exit_codes_are_told_apart() -> None:
    codes = [1, 2, 1]
    pods = [make_pod(f"worker-{index}", BAD, exit_code=code) for index, code in enumerate(codes)]
    assert [message for _, _, message in events_of(plan_for(*pods))] == [
        "Pod: ns.x-worker-0 exited with code 1 (and 1 more: x-worker-2)",
        "Pod: ns.x-worker-1 exited with code 2",
    ]


def test_the_end_of_a_job_comes_after_the_exit_that_caused_it() -> None:
    plan = plan_for(make_pod("worker-0", BAD, exit_code=3), restart="Never", status=RUNNING)
    assert [event.reason for event in (*plan.pod_events, *plan.events)] == ["ExitedWithCode", "PyTorchJobFailed"]


def test_a_suspended_job_tells_nothing_of_the_pods_that_it_sends_away() -> None:
    gone = PodProblem("PreemptionByScheduler", "preempted", "condition")
    plan = plan_for(make_pod("worker-0", RUN, deleting=True, problem=gone), runPolicy={"suspend": True}, status=RUNNING)
    assert (plan.pod_events, plan.lost) == ((), ())


def test_a_suspended_job_keeps_what_was_reported_of_pods_that_still_exist() -> None:
    reported = [("uid-worker-0", "ImagePullBackOff"), ("uid-of-another", "ImagePullBackOff")]
    plan = plan_for(make_pod("worker-0", deleting=True), reported=reported, runPolicy={"suspend": True}, status=RUNNING)
    assert plan.reported == {("uid-worker-0", "ImagePullBackOff")}


def test_a_pod_is_lost_whichever_replica_it_is() -> None:
    pods = [make_pod("worker-0"), make_pod("worker-1", deleting=True, cause=LossCause.PREEMPTED)]
    assert plan_for(*pods, status=RUNNING).lost == (LossCause.PREEMPTED,)
    master = make_pod("master-0", deleting=True, cause=LossCause.PREEMPTED)
    assert plan_for(master, master=1, workers=None, status=RUNNING).lost == (LossCause.PREEMPTED,)


def test_a_pod_whose_replica_is_not_restarted_is_not_counted_with_the_others() -> None:
    roles = {
        role: {"replicas": 1, "template": make_template(), "restartPolicy": policy}
        for role, policy in (("Master", "OnFailure"), ("Worker", "Never"))
    }
    pods = [make_pod(who, deleting=True, cause=LossCause.PREEMPTED) for who in ("master-0", "worker-0")]
    assert plan_for(*pods, pytorchReplicaSpecs=roles, status=RUNNING).lost == (LossCause.PREEMPTED,)


def test_a_job_that_has_ended_loses_no_pods() -> None:
    pods = [make_pod("master-0", PodPhase.SUCCEEDED), make_pod("worker-0", deleting=True)]
    assert plan_for(*pods, master=1, workers=1, status=RUNNING).lost == ()


@pytest.mark.parametrize(
    ("pod", "job", "lost"),
    [
        pytest.param({"cause": LossCause.PREEMPTED}, {}, (LossCause.PREEMPTED,), id="preempted"),
        pytest.param({}, {}, (LossCause.UNKNOWN,), id="nobody says why"),
        pytest.param({"phase": BAD}, {}, (LossCause.UNKNOWN,), id="killed and not gone yet"),
        pytest.param({"phase": PodPhase.SUCCEEDED}, {}, (), id="one that is done is missed by nobody"),
        pytest.param({"phase": PENDING}, {}, (), id="one that never ran failed nothing"),
        pytest.param({}, {"restart": "Never"}, (), id="under Never it is not made again"),
        pytest.param({"phase": BAD}, {"status": COUNTED}, (), id="one that the status counts already"),
    ],
)
def test_pods_that_are_taken_away(pod: dict[str, Any], job: dict[str, Any], lost: tuple[LossCause, ...]) -> None:
    going = make_pod("worker-0", **{"phase": RUN, "deleting": True, **pod})
    plan = plan_for(going, make_pod("worker-1"), **{"status": RUNNING, **job})
    assert plan.lost == lost
    assert plan_for(going, make_pod("worker-1"), reported=plan.reported, **{"status": RUNNING, **job}).lost == ()
