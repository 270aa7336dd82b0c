"""Nodes on which pods of a job fail again and again."""

from typing import Any

import pytest

from pytorchjob_operator.model import JobStatus, NodeFailures, UnfitPod
from pytorchjob_operator.names import LossCause, Reason
from pytorchjob_operator.observed import Options, Pod, PodPhase
from pytorchjob_operator.plan import Plan, make_plan
from pytorchjob_operator.plan.failing_nodes import counted, repeated
from pytorchjob_operator.plan.pods import build_pod
from tests.factories import NOW, at, full_job, make_job, make_pod, make_template, observed, replica

AVOIDS = {"agent": {"avoidNodes": True}}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def failures(**nodes: int) -> tuple[NodeFailures, ...]:
    """Numbers of failed pods by node."""
    return tuple(NodeFailures(node=node, pods=number, last_time=NOW) for node, number in nodes.items())


def numbers(found: tuple[NodeFailures, ...] | None) -> dict[str, int]:
    return {known.node: known.pods for known in found or ()}


def failed(who: str = "worker-0", **fields: Any) -> Pod:
    return make_pod(who, PodPhase.FAILED, **{"node": "n1", "cause": LossCause.SIGNAL, "exit_code": 137, **fields})


@pytest.mark.parametrize(
    ("before", "pod", "after"),
    [
        pytest.param({}, failed(), {"n1": 1}, id="the first failure"),
        pytest.param({"n1": 1}, failed(), {"n1": 2}, id="the second one"),
        pytest.param({"n1": 2, "n2": 1}, failed(), {"n2": 1, "n1": 3}, id="the node that failed last comes last"),
        pytest.param({}, failed(cause=LossCause.NODE_LOST), {"n1": 1}, id="a node that was lost"),
        pytest.param({}, failed(cause=None), {"n1": 1}, id="a pod that its agent found unfit"),
        pytest.param({}, failed(cause=LossCause.PREEMPTED), {}, id="a pod that had to go for another"),
        pytest.param({}, failed(cause=LossCause.DELETED), {}, id="a pod that a client deleted"),
        pytest.param({}, failed(cause=LossCause.EVICTED), {}, id="an evicted pod"),
        pytest.param({}, failed(node=""), {}, id="a pod that never had a node"),
    ],
)
def test_a_failed_pod_counts_for_its_node(before: dict[str, int], pod: Pod, after: dict[str, int]) -> None:
    found = numbers(counted(failures(**before), [pod], NOW))
    assert [*found.items()] == [*after.items()]


def test_of_many_nodes_the_last_ones_are_kept() -> None:
    many = [failed(node=f"n{number}") for number in range(80)]
    assert [*numbers(counted((), many, NOW))] == [f"n{number}" for number in range(16, 80)]


@pytest.mark.parametrize(
    ("seen", "named"),
    [
        pytest.param({}, (), id="none has failed"),
        pytest.param({"n1": 1}, (), id="once may be an accident"),
        pytest.param({"n1": 2}, ("n1",), id="twice"),
        pytest.param({"n1": 2, "n2": 1}, ("n1",), id="more often than the others together"),
        pytest.param({"n1": 2, "n2": 2}, ("n1", "n2"), id="two bad nodes"),
        pytest.param({"n1": 2, "n2": 1, "n3": 2}, (), id="a script that fails everywhere names no node"),
    ],
)
def test_which_nodes_fail_repeatedly(seen: dict[str, int], named: tuple[str, ...]) -> None:
    assert repeated(failures(**seen)) == named


def plan(status: JobStatus | None = None, *pods: Pod, **case: Any) -> Plan:
    return make_plan(observed(make_job(status=status, **case), *(pods or (make_pod("master-0"), failed())), seconds=60))


def test_a_pod_counts_once_and_in_the_write_that_counts_its_restart() -> None:
    first = plan().status
    assert first is not None
    assert (first.restarts, numbers(first.node_failures)) == (1, {"n1": 1})
    again = plan(first).status
    assert again is None or numbers(again.node_failures) == {"n1": 1}


def test_a_suspended_job_keeps_what_it_knows_of_nodes() -> None:
    known = JobStatus(node_failures=failures(n1=2))
    found = plan(known, make_pod("master-0"), runPolicy={"suspend": True}).status
    assert found is not None
    assert numbers(found.node_failures) == {"n1": 2}


@pytest.mark.parametrize(
    ("before", "case", "told"),
    [
        pytest.param({}, {}, None, id="the first failure"),
        pytest.param({"n1": 1}, {}, "spec.agent.avoidNodes lets new pods prefer other nodes.", id="the second one"),
        pytest.param(
            {"n1": 1}, AVOIDS, "new pods prefer other nodes.", id="the second one, of a job that avoids nodes"
        ),
        pytest.param({"n1": 2}, {}, None, id="it was named before"),
    ],
)
def test_a_node_is_named_once(before: dict[str, int], case: dict[str, Any], told: str | None) -> None:
    found = plan(JobStatus(node_failures=failures(**before)), **case).events
    messages = [event.message for event in found if event.reason == Reason.NODE_FAILS]
    expected = f"2 pods of this job have failed on node n1: check the node; {told}"
    assert messages == ([] if told is None else [expected])


def affinity(status: dict[str, int], **case: Any) -> Any:
    """The affinity of a pod that is created now."""
    job = full_job(**case).model_copy(update={"status": JobStatus(node_failures=failures(**status))})
    return build_pod(job, replica("worker-0"), Options())["spec"].get("affinity")


def other_than(*nodes: str) -> dict[str, Any]:
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    return {"weight": 100, "preference": {"matchFields": fields}}


def test_a_replica_prefers_other_nodes_than_those_that_were_unfit_for_it() -> None:
    unfit = (UnfitPod(name="x-worker-0", uid="a", node="n1"), UnfitPod(name="x-worker-1", uid="b", node="n2"))
    status = JobStatus(unfit_pods=unfit, node_failures=failures(n1=2, n3=2))
    for case, nodes in (({}, ["n1"]), (AVOIDS, ["n1", "n3"])):
        job = full_job(**case).model_copy(update={"status": status})
        found = build_pod(job, replica("worker-0"), Options())["spec"]["affinity"]
        assert found == {"nodeAffinity": {PREFERRED: [other_than(*nodes)]}}


OWN: dict[str, Any] = {
    "podAntiAffinity": {PREFERRED: []},
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}, PREFERRED: ["own"]},
}


@pytest.mark.parametrize(
    ("status", "case", "expected"),
    [
        pytest.param({"n1": 2}, {}, None, id="only a job that asks for it"),
        pytest.param({"n1": 1}, AVOIDS, None, id="no node fails repeatedly"),
        pytest.param({"n1": 2}, AVOIDS, {"nodeAffinity": {PREFERRED: [other_than("n1")]}}, id="a node that fails"),
        pytest.param(
            {"n1": 2, "n2": 2}, AVOIDS, {"nodeAffinity": {PREFERRED: [other_than("n1", "n2")]}}, id="two of them"
        ),
        pytest.param(
            {"n1": 2},
            {**AVOIDS, "template": make_template(affinity=OWN)},
            {**OWN, "nodeAffinity": {**OWN["nodeAffinity"], PREFERRED: ["own", other_than("n1")]}},
            id="beside the user's own rules",
        ),
    ],
)
def test_new_pods_prefer_other_nodes(status: dict[str, int], case: dict[str, Any], expected: Any) -> None:
    assert affinity(status, **case) == expected


def test_the_time_of_the_last_failure_is_kept() -> None:
    [found] = counted(failures(n1=1), [failed()], at(60))
    assert found.last_time == at(60)
