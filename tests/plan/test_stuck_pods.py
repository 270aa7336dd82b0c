"""Pods that do not end: deleted by force once nobody can end them any more, and left alone before that."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pytorchjob_operator.model import ConditionType, JobStatus
from pytorchjob_operator.names import EventType, Reason
from pytorchjob_operator.observed import NodeHealth, NodeState, Observed, Options, Pod, PodPhase
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.plan.stuck_pods import RECHECK
from pytorchjob_operator.plan.writes import DeletePod, Event, Plan
from tests.factories import at, condition, make_job, make_pod, make_template, observed, pods, written
from tests.plan.model_cluster import ModelCluster

RUN, WAIT = PodPhase.RUNNING, PodPhase.PENDING
READY, NOT_READY, UNKNOWN = NodeHealth.READY, NodeHealth.NOT_READY, NodeHealth.UNKNOWN
OUT, GONE = NodeHealth.OUT_OF_SERVICE, NodeHealth.GONE
RESTARTING = (condition(ConditionType.CREATED), condition(ConditionType.RESTARTING))
NEVER = datetime.max.replace(tzinfo=UTC)
LATER = 1000 + RECHECK.total_seconds()


def going(who: str = "worker-0", phase: PodPhase = RUN, **fields: Any) -> Pod:
    """A pod on node n that was to be gone at 900 s."""
    return make_pod(who, phase, **{"node": "n", "deleting": True, "deleted_at": at(900), **fields})


def settled(status: JobStatus | None = None, seconds: float = 1000, **case: Any) -> Observed:
    """A job whose Master runs and whose worker is `going`, with a status that says so."""
    seen = observed(make_job(status=status, **case), *pods(RUN), going(), seconds=seconds)
    if status is not None:
        return seen
    stored = make_plan(seen).status
    assert stored is not None
    return replace(seen, job=seen.job.model_copy(update={"status": stored}))


def decided(state: NodeState | None, seen: Observed | None = None, **changes: Any) -> Plan:
    """The plan with this state of node n; None: it was not asked for yet."""
    return make_plan(replace(seen or settled(), nodes={"n": state} if state else {}, **changes))


@pytest.mark.parametrize(
    ("state", "state_text"),
    [
        pytest.param(NodeState(GONE), "node n is gone", id="its node is gone"),
        pytest.param(NodeState(OUT), "node n is out of service", id="its node is out of service"),
        pytest.param(NodeState(GONE, at(800)), "node n is gone", id="its node is gone since then"),
        pytest.param(
            NodeState(NOT_READY, at(800)), "node n has not been ready for 200 s", id="its node has not been ready long"
        ),
    ],
)
def test_an_overdue_pod_goes_by_force_when(state: NodeState, state_text: str) -> None:
    plan = decided(state)
    why = f"its grace period ended 100 s ago, and {state_text}"
    assert plan.writes == (DeletePod("x-worker-0", "uid-worker-0", why, force=True),)
    assert plan.events == (Event(Reason.FORCE_DELETED_POD, f"Force-deleted pod: x-worker-0: {why}", EventType.WARNING),)
    assert plan.reason.endswith("; 1 pods deleted by force")
    assert (plan.wake_at, plan.nodes) == (None, frozenset())


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        pytest.param(NodeState(READY), LATER, id="its node is well: it may be saving a checkpoint"),
        pytest.param(NodeState(UNKNOWN), LATER, id="nothing is known of its node"),
        pytest.param(NodeState(NOT_READY), LATER, id="its node does not say since when it is not ready"),
        pytest.param(NodeState(NOT_READY, at(950)), 1010, id="its node has not been ready for a moment only"),
        pytest.param(NodeState(NOT_READY, at(1000)), LATER, id="its node is asked again before that moment is long"),
    ],
)
def test_an_overdue_pod_stays_and_is_looked_at_again_while(state: NodeState, seconds: float) -> None:
    plan = decided(state)
    assert (plan.empty, plan.wake_at, plan.nodes) == (True, at(seconds), frozenset())


def test_a_node_is_asked_for_once_a_pod_on_it_is_overdue() -> None:
    assert decided(None).nodes == {"n"}


@pytest.mark.parametrize(
    ("fields", "wake_at"),
    [
        pytest.param({"deleted_at": at(950)}, 1010, id="in its time, and a moment of patience"),
        pytest.param({"deleting": False, "deleted_at": None}, None, id="not even terminating"),
        pytest.param({"node": ""}, None, id="of no node: the API server needs no kubelet"),
        pytest.param({"deleted_at": None}, None, id="deleted by force already, and held by a finalizer"),
        pytest.param({"deleted_at": NEVER}, None, id="whose grace period outlasts the calendar"),
    ],
)
def test_no_node_is_asked_for_a_pod(fields: dict[str, Any], wake_at: float | None) -> None:
    seen = settled()
    plan = decided(None, replace(seen, pods=(*pods(RUN), going(**fields))))
    assert plan.nodes == frozenset()
    assert {plan.wake_at} - {plan.status_due, None} == ({at(wake_at)} if wake_at else set())


@pytest.mark.parametrize(
    ("state", "writes", "wake_at", "nodes"),
    [
        pytest.param(None, 0, LATER, {"n"}, id="its node is read"),
        pytest.param(NodeState(READY), 0, LATER, set(), id="its node is read again later"),
        pytest.param(NodeState(GONE), 1, None, set(), id="it is deleted if its node is gone"),
    ],
)
def test_at_the_moment_at_which_a_pod_is_overdue(
    state: NodeState | None, writes: int, wake_at: float | None, nodes: set[str]
) -> None:
    plan = decided(state, options=Options(stuck_pod_seconds=100))
    assert (len(plan.writes), plan.wake_at, plan.nodes) == (writes, None if wake_at is None else at(wake_at), nodes)


def test_nought_seconds_of_patience_are_patience_for_ever() -> None:
    plan = decided(NodeState(GONE), options=Options(stuck_pod_seconds=0))
    assert (plan.empty, plan.wake_at) == (True, None)


def test_the_patience_counts_from_the_end_of_the_grace_period() -> None:
    plan = decided(NodeState(GONE), options=Options(stuck_pod_seconds=101))
    assert (plan.empty, plan.wake_at) == (True, at(1001))


SUSPENDED = JobStatus(conditions=(condition(ConditionType.SUSPENDED),))


@pytest.mark.parametrize(
    ("case", "seen"),
    [
        pytest.param({"workers": None}, going("worker-3"), id="a surplus pod of a job that was scaled down"),
        pytest.param({"status": SUSPENDED, "runPolicy": {"suspend": True}}, going(), id="a suspended job"),
        pytest.param(
            {"status": JobStatus(conditions=(condition(ConditionType.SUCCEEDED),))}, going(), id="one that succeeded"
        ),
        pytest.param(
            {"status": JobStatus(conditions=(condition(ConditionType.FAILED),)), "restart": "Never"},
            going(),
            id="one that failed, whatever its cleanPodPolicy",
        ),
        pytest.param({}, going(phase=WAIT), id="a pod that never started"),
        pytest.param({}, going(replica_type=None, index=None, name="x-other"), id="a pod of ours without its labels"),
    ],
)
def test_every_terminating_pod_of_a_job_is_looked_after(case: dict[str, Any], seen: Pod) -> None:
    cluster_saw = observed(make_job(**case), *pods(RUN), seen, seconds=1000)
    first = make_plan(replace(cluster_saw, nodes={"n": NodeState(GONE)}))
    stored = cluster_saw.job.model_copy(update={"status": first.status or cluster_saw.job.status})
    second = decided(NodeState(GONE), replace(cluster_saw, job=stored))
    assert f"-{seen.name}" in [*written(first), *written(second)]


def test_a_job_that_is_being_deleted_is_the_garbage_collectors() -> None:
    job = make_job(meta={"deletionTimestamp": "2026-01-02T03:04:05Z"})
    assert decided(NodeState(GONE), observed(job, going(), seconds=1000)).empty


@pytest.mark.parametrize("restart", ["OnFailure", "Never"])
def test_the_status_speaks_of_a_pod_before_it_is_gone(restart: str) -> None:
    plan = decided(NodeState(GONE), observed(make_job(restart=restart), *pods(RUN), going(), seconds=1000))
    assert plan.status is not None
    assert (plan.writes, plan.wake_at) == ((), at(1000))


def test_the_pods_of_one_node_make_one_event() -> None:
    job = make_job(workers=3, status=JobStatus(conditions=RESTARTING))
    lost = (going("worker-0"), going("worker-1"), going("worker-2", node="m"))
    seen = observed(job, *pods(RUN), *lost, seconds=1000)
    seen = replace(seen, job=job.model_copy(update={"status": make_plan(seen).status or job.status}))
    plan = make_plan(replace(seen, nodes={"n": NodeState(GONE), "m": NodeState(OUT)}))
    forced = [event.message for event in plan.events if event.reason == Reason.FORCE_DELETED_POD]
    why = "its grace period ended 100 s ago, and node"
    assert forced == [
        f"Force-deleted 2 pods: x-worker-0, x-worker-1: {why} n is gone",
        f"Force-deleted pod: x-worker-2: {why} m is out of service",
    ]


@pytest.mark.parametrize(
    ("restart", "end"),
    [
        pytest.param("OnFailure", "Running=True PyTorchJobRunning", id="OnFailure: it goes on with a new pod"),
        pytest.param("Never", "Failed=True PyTorchJobFailed", id="Never: a running pod that was taken is a failure"),
    ],
)
def test_a_job_that_loses_a_node(restart: str, end: str) -> None:
    cluster = ModelCluster(make_job(restart=restart, template=make_template()))
    cluster.settle()
    lost = cluster.pods["x-worker-0"]
    cluster.lose(lost.node, NOT_READY)
    cluster.settle()
    assert cluster.conditions()[-1] == end
    assert [event.reason for event in cluster.events].count(Reason.FORCE_DELETED_POD) == 1
    assert lost.uid not in {pod.uid for pod in cluster.pods.values()}
