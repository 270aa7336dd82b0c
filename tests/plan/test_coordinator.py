"""What a plan decides for the coordinator: sync a job with a policy and pods, finish it, or forget it."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.coordinator_update import CoordinatorUpdate, Finish, Forget, Sync
from pytorchjob_operator.model import ConditionType, ElasticStatus, JobStatus, RestartPolicy
from pytorchjob_operator.observed import CoordinatorAccess, Options, Pod, PodPhase
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.problem import PodProblem
from pytorchjob_operator.rounds.values import ExpectedPod, Policy
from tests.factories import condition, make_job, make_pod, observed, pods

OPTIONS = Options(coordinator=CoordinatorAccess("op:29600"))
WITHOUT = make_pod("worker-0", without_coordinator=True)
RUN, OVER = PodPhase.RUNNING, PodPhase.SUCCEEDED
FAILED = JobStatus(conditions=(condition(ConditionType.FAILED),))
SUCCEEDED = JobStatus(conditions=(condition(ConditionType.SUCCEEDED),))
NEVER, EXIT_CODE = RestartPolicy.NEVER.value, RestartPolicy.EXIT_CODE.value


def update(spec: dict[str, Any], *seen: Pod, options: Options = OPTIONS) -> CoordinatorUpdate:
    """The update in the plan for a job with these pods."""
    return make_plan(replace(observed(make_job(**spec), *seen), options=options)).coordinator


def conf(**keys: str) -> dict[str, Any]:
    return {"elasticPolicy": {"rdzvConf": [{"key": key, "value": value} for key, value in keys.items()]}}


def test_a_local_run_gives_up_sooner_after_the_same_early_error() -> None:
    decided = update({}, options=replace(OPTIONS, early_exits=3))
    assert isinstance(decided, Sync)
    assert decided.policy == Policy(2, 2, early_errors=3)


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        pytest.param({"workers": 2}, Policy(3, 3), id="a fixed job needs all of its pods"),
        pytest.param(
            {"master": None, "workers": 3, "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}},
            Policy(2, 4),
            id="an elastic one as many as its range says",
        ),
        pytest.param(
            {"workers": 3, "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}},
            Policy(3, 5),
            id="and its Master",
        ),
        pytest.param({"restart": NEVER}, Policy(2, 2, max_restarts=0), id="Never forgives nothing"),
        pytest.param({"runPolicy": {"backoffLimit": 0}}, Policy(2, 2, max_restarts=0), id="backoffLimit 0 allows none"),
        pytest.param(
            {"runPolicy": {"backoffLimit": 5}},
            Policy(2, 2, max_restarts=4),
            id="the n-th restart is one too many for backoffLimit n",
        ),
        pytest.param(
            {"restart": NEVER, "runPolicy": {"backoffLimit": 5}},
            Policy(2, 2, max_restarts=0),
            id="Never goes before it",
        ),
        pytest.param(
            {"restart": NEVER, "elasticPolicy": {"maxRestarts": 7}},
            Policy(2, 2, max_restarts=7),
            id="maxRestarts goes before both",
        ),
        pytest.param(
            {"agent": {"restartWindowSeconds": 60}, "elasticPolicy": {"maxRestarts": 7}},
            Policy(2, 2, max_restarts=7, restart_window=60),
            id="restarts count within the window",
        ),
        pytest.param(
            {"restart": EXIT_CODE}, Policy(2, 2, first_retryable_exit_code=128), id="ExitCode ends for codes below 128"
        ),
        pytest.param(
            conf(last_call_timeout="5", join_timeout="90.5"),
            Policy(2, 2, last_call_timeout=5.0, join_timeout=90.5),
            id="rdzvConf says how long a round is waited for",
        ),
        pytest.param(conf(last_call_timeout="soon", join_timeout="inf"), Policy(2, 2), id="what is no number is none"),
        pytest.param(
            conf(last_call_timeout="0", join_timeout="0.5"),
            Policy(2, 2, last_call_timeout=0.0, join_timeout=0.5),
            id="no time, and a part of a second",
        ),
        pytest.param(
            conf(last_call_timeout="-1", join_timeout="2592000"),
            Policy(2, 2, join_timeout=2592000.0),
            id="a negative time is invalid, a month is valid",
        ),
        pytest.param(conf(join_timeout="2592001"), Policy(2, 2), id="more than a month is invalid"),
        pytest.param(
            {"runPolicy": {"backoffLimit": 1}}, Policy(2, 2, max_restarts=0), id="backoffLimit 1 allows no restart"
        ),
    ],
)
def test_policy(spec: dict[str, Any], policy: Policy) -> None:
    assert update(spec) == Sync(policy, {}, "x", "ns")


@pytest.mark.parametrize(
    ("stored", "reported", "restarts"),
    [
        pytest.param(None, None, 0, id="nothing is known"),
        pytest.param(3, None, 3, id="a new coordinator does not begin at 0"),
        pytest.param(3, 1, 3, id="nor does it go back"),
        pytest.param(3, 4, 4, id="the coordinator knows more than the status"),
    ],
)
def test_the_restarts_of_the_status_reach_the_coordinator(
    stored: int | None, reported: int | None, restarts: int
) -> None:
    job = make_job()
    status = job.status.model_copy(update={"elastic": None if stored is None else ElasticStatus(restarts=stored)})
    report = None if reported is None else Report(round="1.1", restarts=reported)
    seen = replace(observed(job.model_copy(update={"status": status})), options=OPTIONS, report=report)
    assert make_plan(seen).coordinator == Sync(Policy(2, 2), {}, "x", "ns", restarts)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(make_pod("master-0"), (0, ExpectedPod("x-master-0", "uid-master-0")), id="the Master is first"),
        pytest.param(
            make_pod("worker-1"), (2, ExpectedPod("x-worker-1", "uid-worker-1")), id="workers follow by index"
        ),
        pytest.param(
            make_pod("worker-0", PodPhase.PENDING, problem=PodProblem("Unschedulable", "no node")),
            (1, ExpectedPod("x-worker-0", "uid-worker-0", problem="Unschedulable: no node")),
            id="what keeps a pod from running is reported",
        ),
        pytest.param(
            make_pod("worker-0", PodPhase.SUCCEEDED),
            (1, ExpectedPod("x-worker-0", "uid-worker-0", succeeded=True)),
            id="a pod that succeeded is done",
        ),
        pytest.param(make_pod("worker-0", PodPhase.FAILED), None, id="a failed pod is not expected"),
        pytest.param(make_pod("worker-0", deleting=True), None, id="nor is one that is deleted"),
        pytest.param(make_pod("worker-7"), None, id="nor is one that is scaled away"),
    ],
)
def test_expected_pods(pod: Pod, expected: tuple[int, ExpectedPod] | None) -> None:
    assert update({"workers": 2}, pod) == Sync(Policy(3, 3), dict([expected]) if expected else {}, "x", "ns")


@pytest.mark.parametrize(
    ("spec", "options", "seen"),
    [
        pytest.param({}, Options(), pods(RUN, RUN), id="the operator has none"),
        pytest.param({"elasticPolicy": {"rdzvBackend": "c10d"}}, OPTIONS, (), id="the user chose a rendezvous"),
        pytest.param({}, OPTIONS, (WITHOUT,), id="a pod was made without it"),
        pytest.param({}, OPTIONS, (replace(WITHOUT, phase=OVER),), id="and so is one that has succeeded"),
        pytest.param({}, OPTIONS, (make_pod("worker-0", anonymous=True),), id="a pod was made by v1"),
    ],
)
def test_a_job_does_without_the_coordinator_if(spec: dict[str, Any], options: Options, seen: tuple[Pod, ...]) -> None:
    assert update(spec, *seen, options=options) == Forget()


GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
FOREIGN = "kueue.x-k8s.io/multikueue"


@pytest.mark.parametrize(
    ("job", "seen", "expected"),
    [
        pytest.param({}, pods(RUN, RUN), Sync, id="a job that runs is synced"),
        pytest.param({}, (), Sync, id="also before it has pods"),
        pytest.param({"runPolicy": {"suspend": True}}, pods(RUN, RUN), Forget, id="suspended"),
        pytest.param({"meta": GOING}, pods(RUN, RUN), Forget, id="being deleted"),
        pytest.param({"runPolicy": {"managedBy": FOREIGN}}, pods(RUN, RUN), Forget, id="managed by another controller"),
        pytest.param({"status": FAILED}, pods(RUN, OVER), Finish(failed=True), id="failed, and a pod runs on"),
        pytest.param({"status": SUCCEEDED}, pods(RUN, OVER), Finish(failed=False), id="succeeded, and a pod runs on"),
        pytest.param({"status": SUCCEEDED}, pods("Pending", OVER), Finish(failed=False), id="or has yet to start"),
        pytest.param({"status": SUCCEEDED}, pods(OVER, OVER), Forget, id="ended, and so have its pods"),
        pytest.param({"status": FAILED}, (), Forget, id="ended, and its pods are gone"),
        pytest.param(
            {"status": FAILED, "runPolicy": {"suspend": True}}, pods(RUN, RUN), Forget, id="ended and suspended"
        ),
    ],
)
def test_what_becomes_of_the_job(
    job: dict[str, Any], seen: tuple[Pod, ...], expected: CoordinatorUpdate | type[CoordinatorUpdate]
) -> None:
    found = update(job, *seen)
    assert found == expected or type(found) is expected
