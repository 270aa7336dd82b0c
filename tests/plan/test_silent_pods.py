"""A frozen agent: its pod is replaced if the pod and its node are well, and costs a restart of backoffLimit."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator.coordinator_report import Report, SilentPod
from pytorchjob_operator.model import ConditionType, RestartPolicy
from pytorchjob_operator.names import Reason
from pytorchjob_operator.observed import NodeHealth, NodeState, Observed, Pod, PodPhase
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.plan.writes import DeletePod, Plan
from tests.factories import at, make_job, make_pod, make_template, observed

NOW = 1000.0
WHY = "its agent has sent nothing for {} s, although the pod is ready"


def silent(seconds: float, *more: str) -> Report:
    return Report(round="1.1", silent=tuple(SilentPod(f"uid-{replica}", seconds) for replica in ("worker-0", *more)))


def job_of(pod: Pod, report: Report | None, health: NodeHealth | None = NodeHealth.READY, **spec: Any) -> Observed:
    """A job whose Master is well and whose worker is this pod."""
    seen = observed(make_job(**spec), make_pod("master-0", ready=True, node="n"), pod, seconds=NOW)
    nodes = {} if health is None else {"n": NodeState(health)}
    return replace(seen, report=report, nodes=nodes)


def settle(seen: Observed) -> tuple[Observed, Plan]:
    """Write the status of the first plan, and plan again."""
    plan = make_plan(seen)
    for _ in range(2):
        if plan.status is not None:
            seen = replace(seen, job=seen.job.model_copy(update={"status": plan.status}))
            plan = make_plan(seen)
    return seen, plan


def frozen(**fields: Any) -> Pod:
    return make_pod("worker-0", **{"ready": True, "ready_since": at(500), "node": "n", **fields})


def deletions(plan: Plan) -> list[DeletePod]:
    return [write for write in plan.writes if isinstance(write, DeletePod)]


def test_the_pod_of_a_frozen_agent_is_counted_then_deleted_with_the_reason() -> None:
    first = make_plan(job_of(frozen(), silent(60.0)))
    assert first.status is not None
    assert (first.status.restarts, first.status.replacing) == (1, ("uid-worker-0",))
    assert deletions(first) == [], "counted first, so that a crash between the two counts it once"
    _, plan = settle(job_of(frozen(), silent(60.0)))
    assert deletions(plan) == [DeletePod("x-worker-0", "uid-worker-0", WHY.format(60))]
    assert f"Deleted pod: x-worker-0: {WHY.format(60)}" in [event.message for event in plan.events]
    assert {event.reason for event in plan.events} == {Reason.DELETED_POD}


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(job_of(frozen(), silent(59.0)), id="it has been silent for a moment only"),
        pytest.param(job_of(frozen(), Report(round="1.1")), id="the coordinator hears it"),
        pytest.param(job_of(frozen(), None), id="there is no coordinator"),
        pytest.param(job_of(frozen(ready=False), silent(90.0)), id="its pod is not ready"),
        pytest.param(job_of(frozen(ready_since=at(960)), silent(90.0)), id="its container was started again meanwhile"),
        pytest.param(job_of(frozen(phase=PodPhase.PENDING), silent(90.0)), id="its pod has not started"),
        pytest.param(job_of(frozen(phase=PodPhase.SUCCEEDED), silent(90.0)), id="its pod has succeeded"),
        pytest.param(job_of(frozen(uid="uid-new"), silent(90.0)), id="its pod was replaced already"),
        pytest.param(job_of(frozen(), silent(90.0), NodeHealth.NOT_READY), id="its node is not ready"),
        pytest.param(job_of(frozen(), silent(90.0), NodeHealth.UNKNOWN), id="its node cannot be read"),
        pytest.param(job_of(frozen(), silent(90.0), NodeHealth.GONE), id="its node is gone"),
        pytest.param(job_of(frozen(), silent(90.0, "master-0")), id="most agents are silent: that is the network"),
        pytest.param(
            job_of(frozen(), silent(90.0), restart=RestartPolicy.NEVER.value), id="restartPolicy Never replaces nothing"
        ),
    ],
)
def test_a_pod_stays_if(seen: Observed) -> None:
    settled, plan = settle(seen)
    assert deletions(plan) == []
    assert settled.job.status.restarts is None


@pytest.mark.parametrize(
    ("seconds", "health", "nodes", "check_at"),
    [
        pytest.param(5.0, None, set(), 1055, id="when it will have been silent for 60 s"),
        pytest.param(60.0, NodeHealth.NOT_READY, set(), 1030, id="later, when it has been silent for just 60 s"),
        pytest.param(75.0, None, {"n"}, 1030, id="its node is asked for"),
        pytest.param(75.0, NodeHealth.NOT_READY, set(), 1030, id="again when its node may be well"),
    ],
)
def test_when_it_is_checked_again(seconds: float, health: NodeHealth | None, nodes: set[str], check_at: float) -> None:
    _, plan = settle(job_of(frozen(), silent(seconds), health))
    assert (plan.nodes, plan.wake_at) == (nodes, at(check_at))


def test_a_local_run_has_no_nodes() -> None:
    _, plan = settle(job_of(frozen(node="", ready_since=None), silent(60.0), None))
    assert [write.name for write in deletions(plan)] == ["x-worker-0"]


def test_a_pod_that_is_ready_since_its_agent_was_heard_last_is_replaced() -> None:
    _, plan = settle(job_of(frozen(ready_since=at(NOW - 90)), silent(90.0)))
    assert [write.name for write in deletions(plan)] == ["x-worker-0"]


@pytest.mark.parametrize(
    ("master", "worker", "deleted"),
    [
        pytest.param(RestartPolicy.ON_FAILURE, RestartPolicy.NEVER, ["x-master-0"], id="the Master's allows it"),
        pytest.param(RestartPolicy.NEVER, RestartPolicy.ON_FAILURE, [], id="the Master's forbids it"),
    ],
)
def test_the_restart_policy_is_that_of_the_silent_replica(
    master: RestartPolicy, worker: RestartPolicy, deleted: list[str]
) -> None:
    roles = {
        role: {"replicas": 1, "template": make_template(), "restartPolicy": policy.value}
        for role, policy in (("Master", master), ("Worker", worker))
    }
    seen = job_of(frozen(), Report(round="1.1", silent=(SilentPod("uid-master-0", 90.0),)), pytorchReplicaSpecs=roles)
    _, plan = settle(seen)
    assert [write.name for write in deletions(plan)] == deleted


def test_frozen_agents_use_up_the_backoff_limit() -> None:
    plan = make_plan(job_of(frozen(), silent(60.0), runPolicy={"backoffLimit": 1}))
    assert plan.status is not None
    assert plan.status.holds(ConditionType.FAILED)
