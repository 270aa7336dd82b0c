"""Jobs that no restart can help: which verdicts end them, and what a crash loop shows."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_operator.coordinator_report import PhaseName, Report
from pytorchjob_operator.model import ConditionType, JobStatus, UnfitPod
from pytorchjob_operator.observed import Observed, Options, Pod, PodPhase
from pytorchjob_operator.plan import Plan, make_plan
from pytorchjob_operator.problem import Crash
from tests.factories import at, make_job, make_pod, observed, written

RUNNING, FAILED = PodPhase.RUNNING, PodPhase.FAILED
NO_TORCH = ExitReason.BAD_SETUP
TRAINS = Report(round="1.1", phase=PhaseName.RUNNING, members=2, world=2)
LINE = "python: can't open file '/train.py'"


def crashed(exits: int, reason: str = "", code: int = 1, **fields: Any) -> Pod:
    """Worker 0, whose container has ended so often."""
    crash = Crash(exits, code, reason, "the reason", fields.pop("since", None))
    return make_pod("worker-0", **{"crash": crash, "node": "n1", **fields})


def plan(pod: Pod, *, seconds: float = 60, report: Report | None = None, early: int = 0, **case: Any) -> Plan:
    seen: Observed = observed(make_job(**case), make_pod("master-0"), pod, seconds=seconds)
    return make_plan(replace(seen, report=report, options=Options(early_exits=early), status_due=at(seconds)))


def state(found: Plan, kind: ConditionType) -> str | None:
    """The message of a condition that is True."""
    condition = found.status.condition(kind) if found.status else None
    return condition.message if condition else None


@pytest.mark.parametrize(
    ("pod", "more", "ends"),
    [
        pytest.param(crashed(3, NO_TORCH, 78), {}, True, id="no torch, the third time"),
        pytest.param(crashed(3, ExitReason.BAD_USAGE, 2), {}, True, id="a wrong command line, the third time"),
        pytest.param(crashed(2, NO_TORCH, 78), {}, False, id="the second may be an accident"),
        pytest.param(crashed(3, NO_TORCH, 78), {"report": TRAINS}, False, id="the others train meanwhile"),
        pytest.param(crashed(9, ExitReason.RENDEZVOUS_FAILED, 201), {}, False, id="peers may come"),
        pytest.param(crashed(9, ExitReason.WORKER_FAILED, 1), {}, False, id="workers have their own budget"),
        pytest.param(crashed(9), {}, False, id="a plain container keeps v1's restarts"),
        pytest.param(crashed(3), {"early": 3}, True, id="in a local run, the same early exit ends the job"),
        pytest.param(crashed(1), {"early": 1}, True, id="in a local run that allows none, the first ends the job"),
        pytest.param(crashed(2), {"early": 3}, False, id="in a local run, two do not"),
        pytest.param(crashed(3, code=137), {"early": 3}, False, id="in a local run, a kill comes from outside"),
        pytest.param(crashed(3, NO_TORCH, 78, deleting=True), {}, False, id="a pod that is being deleted"),
    ],
)
def test_which_early_exits_end_a_job(pod: Pod, more: dict[str, Any], ends: bool) -> None:
    found = state(plan(pod, **more), ConditionType.FAILED)
    assert (found is not None) is ends
    assert found is None or "x-worker-0" in found


def test_the_end_says_what_happened_and_what_to_do() -> None:
    assert state(plan(crashed(3, NO_TORCH, 78)), ConditionType.FAILED) == (
        "pod x-worker-0 ended 3 times in a row soon after its start: BadSetup: the reason."
        " Another restart would not help: correct the image, the command or the script"
    )


@pytest.mark.parametrize(
    ("pod", "shown"),
    [
        pytest.param(crashed(3), True, id="it waits for its fourth start"),
        pytest.param(crashed(2), False, id="two exits are no loop"),
        pytest.param(crashed(3, since=at(0)), True, id="it has run again for a minute"),
        pytest.param(crashed(3, since=at(-60)), False, id="it has run again for two minutes"),
        pytest.param(crashed(3, phase=FAILED), False, id="it has failed: the operator replaces it"),
    ],
)
def test_a_crash_loop_is_shown_while_it_lasts(pod: Pod, shown: bool) -> None:
    assert (state(plan(pod), ConditionType.DEGRADED) is not None) is shown


def test_the_crash_loop_names_the_last_line_and_what_to_do() -> None:
    pod = make_pod("worker-0", crash=Crash(5, 2, "", LINE))
    found = plan(pod).status
    assert found is not None
    degraded = found.condition(ConditionType.DEGRADED)
    assert degraded is not None
    assert degraded.reason == "CrashLoop"
    assert degraded.message == (
        f"pod x-worker-0 has ended 5 times, each time soon after its start: exit code 2, {LINE}."
        " Read `kubectl logs x-worker-0 -c pytorch --previous`, then correct the image, the command or the script;"
        " runPolicy.backoffLimit limits the restarts"
    )


def shown(*pods: Pod, **case: Any) -> str:
    """The message of the crash loop of these pods."""
    seen = observed(make_job(workers=len(pods), **case), make_pod("master-0"), *pods, seconds=60)
    return state(make_plan(replace(seen, status_due=at(60))), ConditionType.DEGRADED) or ""


@pytest.mark.parametrize(
    ("count", "others"),
    [(1, "without a message. Read"), (2, "(1 more pods do the same). Read"), (4, "(3 more pods do the same). Read")],
)
def test_the_crash_loop_names_the_first_replica_and_counts_the_others(count: int, others: str) -> None:
    pods = [make_pod(f"worker-{index}", crash=Crash(5, 2)) for index in reversed(range(count))]
    message = shown(*pods)
    assert message.startswith("pod x-worker-0 has ended 5 times")
    assert ": exit code 2 without a message" in message
    assert others in message


def test_a_job_that_limits_its_restarts_is_not_advised_to() -> None:
    message = shown(crashed(3), runPolicy={"backoffLimit": 9})
    assert message.endswith("then correct the image, the command or the script")


def test_a_crash_loop_beside_a_problem_of_the_training_shows_both() -> None:
    report = Report(problems={"RendezvousWaiting": "waits for replica 1"})
    found = plan(crashed(3), report=report).status
    assert found is not None
    degraded = found.condition(ConditionType.DEGRADED)
    assert degraded is not None
    assert degraded.reason == "CrashLoop"
    assert degraded.message.endswith("; waits for replica 1")


def test_the_next_pass_sees_the_end_of_the_loop() -> None:
    assert plan(crashed(3, since=at(0))).wake_at == at(120)


def test_no_pass_waits_for_the_loop_of_a_job_that_has_ended() -> None:
    ended = plan(crashed(3, NO_TORCH, 78, since=at(0)))
    assert state(ended, ConditionType.FAILED) is not None
    assert ended.wake_at is None


def test_a_pod_whose_program_failed_is_not_listed_as_unfit() -> None:
    status = plan(crashed(2)).status
    assert status is not None
    assert status.unfit_pods is None


def listed(*pods: tuple[str, str]) -> JobStatus:
    """The status after these pods were unfit, as (uid, node)."""
    return JobStatus(unfit_pods=tuple(UnfitPod(name="x-worker-0", uid=uid, node=node) for uid, node in pods))


UNFIT = crashed(1, ExitReason.PREFLIGHT_FAILED, 200)
BROKEN = crashed(1, ExitReason.DEVICE_FAILED, 200)
UNFIT_FAILED = replace(UNFIT, phase=FAILED, exit_code=200)


@pytest.mark.parametrize(
    ("pod", "policy"),
    [
        pytest.param(UNFIT, "OnFailure", id="the kubelet would restart it on the same node"),
        pytest.param(UNFIT_FAILED, "ExitCode", id="a failed pod"),
        pytest.param(BROKEN, "OnFailure", id="a device of the node is broken"),
    ],
)
def test_an_unfit_pod_is_counted_and_then_replaced(pod: Pod, policy: str) -> None:
    first = plan(pod, restart=policy).status
    assert first is not None
    assert first.unfit_pods == (UnfitPod(name="x-worker-0", uid=pod.uid, node="n1"),)
    assert first.restarts == 1
    assert written(plan(pod, restart=policy, status=first)) == ["-x-worker-0"]


@pytest.mark.parametrize(("pod", "policy"), [(UNFIT, "OnFailure"), (UNFIT_FAILED, "ExitCode"), (BROKEN, "OnFailure")])
def test_the_third_unfit_node_ends_the_job(pod: Pod, policy: str) -> None:
    last = state(plan(pod, restart=policy, status=listed(("a", "n3"), ("b", "n2"))), ConditionType.FAILED)
    assert last == "pod x-worker-0 was unfit for the job 3 times (on n3, n2, n1), last: the reason"


def test_three_unfit_nodes_of_different_replicas_end_nothing() -> None:
    others = (UnfitPod(name="x-worker-1", uid="a", node="n3"), UnfitPod(name="x-worker-2", uid="b", node="n2"))
    assert state(plan(UNFIT, status=JobStatus(unfit_pods=others)), ConditionType.FAILED) is None


def test_while_others_train_the_third_unfit_pod_stays_with_the_kubelet() -> None:
    found = plan(UNFIT, report=replace(TRAINS, members=1), status=listed(("a", "n3"), ("b", "n2")))
    assert (written(found), state(found, ConditionType.FAILED)) == ([], None)


def test_once_all_train_the_count_begins_again() -> None:
    found = plan(make_pod("worker-0"), report=TRAINS, status=listed(("a", "n3"), ("b", "n2"))).status
    assert found is not None
    assert found.unfit_pods is None
