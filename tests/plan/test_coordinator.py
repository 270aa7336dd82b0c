"""What a plan decides for the coordinator: sync a job with a policy and pods, finish it, or forget it."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.coordinator_update import CoordinatorUpdate, Finish, Forget, Sync
from pytorchjob_operator.goodput.ledger import JobStage
from pytorchjob_operator.model import ConditionType, ElasticStatus, JobStatus, RestartPolicy
from pytorchjob_operator.names import LossCause
from pytorchjob_operator.observed import CoordinatorAccess, Options, Pod, PodPhase
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.problem import PodProblem
from pytorchjob_operator.rounds.values import ExpectedPod, Policy
from tests.factories import at, condition, make_job, make_pod, observed, pods

OPTIONS = Options(coordinator=CoordinatorAccess("op:29600"))
WITHOUT = make_pod("worker-0", without_coordinator=True)
RUN, OVER = PodPhase.RUNNING, PodPhase.SUCCEEDED
FAILED = JobStatus(conditions=(condition(ConditionType.FAILED),))
SUCCEEDED = JobStatus(conditions=(condition(ConditionType.SUCCEEDED),))
NEVER, EXIT_CODE = RestartPolicy.NEVER.value, RestartPolicy.EXIT_CODE.value


def going(who: str, end: float, **fields: Any) -> Pod:
    """A pod that is deleted; its grace period ends then."""
    return make_pod(who, **{"deleting": True, "deleted_at": at(end), **fields})


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
            {"agent": {"startMode": "Warm"}},
            Policy(2, 2, rejoin_timeout=0.3),
            id="a round of warm workers waits no longer for lost members than it takes to start",
        ),
        pytest.param({"agent": {"startMode": "Cold"}}, Policy(2, 2), id="cold workers take longer to start"),
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
    assert update(spec) == Sync(policy, {}, "x", "ns", stage=JobStage.WAITING_FOR_PODS)


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
    assert make_plan(seen).coordinator == Sync(Policy(2, 2), {}, "x", "ns", restarts, stage=JobStage.WAITING_FOR_PODS)


@pytest.mark.parametrize(
    ("stored", "trained"),
    [
        pytest.param(None, False, id="no round is known"),
        pytest.param(ElasticStatus(), False, id="an empty status names none"),
        pytest.param(ElasticStatus(round="7.1"), True, id="an agent may train the round that the status names"),
    ],
)
def test_the_coordinator_learns_from_the_status_that_a_job_has_trained(
    stored: ElasticStatus | None, trained: bool
) -> None:
    job = make_job()
    job = job.model_copy(update={"status": job.status.model_copy(update={"elastic": stored})})
    decided = make_plan(replace(observed(job), options=OPTIONS)).coordinator
    assert isinstance(decided, Sync)
    assert decided.trained is trained


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
    decided = update({"workers": 2}, pod)
    assert isinstance(decided, Sync)
    assert decided.pods == (dict([expected]) if expected else {})


@pytest.mark.parametrize(
    ("pod", "zones", "zone"),
    [
        pytest.param(make_pod("worker-0", node="n1"), {"n1": "eu-1a"}, "eu-1a", id="the label of its node"),
        pytest.param(make_pod("worker-0", node="n1"), {"n2": "eu-1a"}, "", id="its node has none, or is not known"),
        pytest.param(make_pod("worker-0"), {"n1": "eu-1a"}, "", id="it is not scheduled"),
        pytest.param(make_pod("worker-0", node="n1", zone="eu-1b"), {}, "eu-1b", id="its own label, without the node"),
        pytest.param(
            make_pod("worker-0", node="n1", zone="eu-1b"), {"n1": "eu-1a"}, "eu-1a", id="the node's label counts first"
        ),
    ],
)
def test_the_coordinator_learns_the_zone_of_a_pod(pod: Pod, zones: dict[str, str], zone: str) -> None:
    decided = make_plan(replace(observed(make_job(), pod), options=OPTIONS, zones=zones)).coordinator
    assert isinstance(decided, Sync)
    assert decided.pods[1].zone == zone


@pytest.mark.parametrize(
    ("pod", "terminating"),
    [
        pytest.param(make_pod("worker-0"), {}, id="a pod that runs does not terminate"),
        pytest.param(going("worker-0", 1010), {1: "uid-worker-0"}, id="a deleted pod runs in its grace period"),
        pytest.param(going("master-0", 1010), {0: "uid-master-0"}, id="the Master is first"),
        pytest.param(going("worker-0", 971), {1: "uid-worker-0"}, id="the kubelet may take a moment to kill it"),
        pytest.param(going("worker-0", 970), {}, id="then its node is dead, or it has been killed"),
        pytest.param(make_pod("worker-0", deleting=True), {}, id="one without a grace period is deleted by force"),
        pytest.param(make_pod("worker-7"), {8: "uid-worker-7"}, id="a pod that is scaled away is about to be deleted"),
        pytest.param(going("worker-7", 1010), {8: "uid-worker-7"}, id="and runs in its grace period"),
        pytest.param(going("worker-7", 970), {}, id="but not for ever"),
        pytest.param(make_pod("worker-7", name="another"), {}, id="a pod with a foreign name is no replica's"),
        pytest.param(going("worker-0", 1010, phase=PodPhase.PENDING), {1: "uid-worker-0"}, id="it may just start"),
        pytest.param(going("worker-0", 1010, phase=PodPhase.SUCCEEDED), {}, id="a pod that has succeeded has ended"),
        pytest.param(going("worker-0", 1010, phase=PodPhase.FAILED), {}, id="so has one that has failed"),
        pytest.param(going("worker-0", 1010, cause=LossCause.EVICTED), {1: "uid-worker-0"}, id="an evicted one runs"),
        pytest.param(going("worker-0", 1010, cause=LossCause.NODE_LOST), {}, id="Kubernetes has given up its node"),
    ],
)
def test_terminating_pods(pod: Pod, terminating: dict[int, str]) -> None:
    seen = replace(observed(make_job(workers=2), pod), options=OPTIONS, now=at(1000))
    decided = make_plan(seen).coordinator
    assert isinstance(decided, Sync)
    assert decided.terminating == terminating


@pytest.mark.parametrize(
    ("options", "ends", "wake_at"),
    [
        pytest.param(OPTIONS, (1010, 1005), at(1035), id="at the end of the first one"),
        pytest.param(OPTIONS, (970, 1005), at(1035), id="of those that are not over"),
        pytest.param(OPTIONS, (970, 960), None, id="then not again"),
        pytest.param(Options(), (1010, 1005), None, id="never without the coordinator"),
    ],
)
def test_when_the_coordinator_is_notified_that_pods_do_not_run_any_more(
    options: Options, ends: tuple[int, int], wake_at: datetime | None
) -> None:
    """The pods have no node here, so nothing else has to be checked."""
    seen = (make_pod("master-0"), *(going(f"worker-{7 + index}", end) for index, end in enumerate(ends)))
    first = make_plan(replace(observed(make_job(workers=0), *seen), options=options, now=at(1000)))
    assert first.status is not None
    job = make_job(workers=0, status=first.status)
    assert make_plan(replace(observed(job, *seen), options=options, now=at(1000))).wake_at == wake_at


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
            {"status": FAILED},
            (make_pod("master-0", OVER), replace(WITHOUT, deleting=True)),
            Forget,
            id="ended, and the pod that runs on has no coordinator",
        ),
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
