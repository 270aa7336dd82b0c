"""What a PodGroup says: how many pods start together, and what they need."""

from typing import Any

import pytest

from pytorchjob_operator import names
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.plan import owner, quantity
from pytorchjob_operator.plan.podgroup import build_pod_group, min_member, min_resources
from tests.factories import full_job, make_template

VOLCANO, PLUGINS, NATIVE = ChildKind.VOLCANO_POD_GROUP, ChildKind.POD_GROUP, ChildKind.NATIVE_POD_GROUP
ELASTIC = {"minReplicas": 2, "maxReplicas": 8}


def policy(**fields: Any) -> dict[str, Any]:
    """The run policy of a gang."""
    return {"schedulingPolicy": fields}


def asking(requests: dict[str, Any], limits: dict[str, Any] | None = None) -> dict[str, Any]:
    """A template whose container asks for this."""
    resources = {"requests": requests, "limits": limits or {}}
    return make_template(containers=[{"name": "pytorch", "image": "train:1", "resources": resources}])


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param({"workers": 3}, 4, id="all replicas"),
        pytest.param({"master": None, "workers": 3}, 3, id="without a Master"),
        pytest.param({"workers": 3, "runPolicy": policy(minAvailable=2)}, 2, id="minAvailable"),
        pytest.param({"workers": 5, "elasticPolicy": ELASTIC}, 3, id="an elastic job's minimum, and its Master"),
        pytest.param({"master": None, "workers": 5, "elasticPolicy": ELASTIC}, 2, id="an elastic job's minimum"),
        pytest.param({"master": None, "workers": 4, "elasticPolicy": {}}, 4, id="an elastic job without bounds"),
        pytest.param(
            {"workers": 5, "elasticPolicy": ELASTIC, "runPolicy": policy(minAvailable=5)},
            5,
            id="minAvailable wins over the minimum",
        ),
        pytest.param({"workers": 1, "runPolicy": policy(minAvailable=9)}, 2, id="never more than there are"),
    ],
)
def test_how_many_pods_start_together(case: dict[str, Any], expected: int) -> None:
    assert min_member(full_job(**case)) == expected


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param({}, {}, id="nothing asked for"),
        pytest.param({"template": asking({"cpu": "500m"})}, {"cpu": "2"}, id="the requests of all pods"),
        pytest.param({"template": asking({}, {"nvidia.com/gpu": 8})}, {"nvidia.com/gpu": "32"}, id="limits if nothing"),
        pytest.param({"template": asking({"cpu": 1}, {"cpu": 4})}, {"cpu": "4"}, id="a request wins over its limit"),
        pytest.param(
            {"template": asking({"cpu": 1}, {"memory": "1Gi"})},
            {"cpu": "4", "memory": "4294967296"},
            id="each resource by itself",
        ),
        pytest.param(
            {"template": asking({"cpu": 1}), "runPolicy": policy(minAvailable=2)}, {"cpu": "2"}, id="of the first pods"
        ),
        pytest.param({"template": asking({"cpu": "much"})}, {}, id="what is no quantity counts nothing"),
        pytest.param({"template": {"spec": None}}, {}, id="an empty template"),
        pytest.param({"template": asking({"cpu": "1e40"})}, {"cpu": "4" + "0" * 40}, id="more than any machine has"),
        pytest.param(
            {"template": asking({"cpu": 1}), "runPolicy": policy(minResources={"cpu": 9, "memory": "2Gi"})},
            {"cpu": 9, "memory": "2Gi"},
            id="what is given is taken as it is",
        ),
    ],
)
def test_what_must_be_free_before_any_pod_starts(case: dict[str, Any], expected: dict[str, Any]) -> None:
    assert min_resources(full_job(workers=3, **case)) == expected


def test_the_master_counts_first() -> None:
    job = full_job(workers=3, runPolicy=policy(minAvailable=2))
    specs = job.spec.pytorch_replica_specs
    assert specs.master is not None
    assert specs.worker is not None
    specs.master.template["spec"] = asking({"cpu": 8})["spec"]
    specs.worker.template["spec"] = asking({"cpu": 1})["spec"]
    assert min_resources(job) == {"cpu": "9"}


def test_init_containers_do_not_count_and_sidecars_do() -> None:
    containers = [{"name": name, "image": "i", "resources": {"requests": {"cpu": 1}}} for name in ("pytorch", "side")]
    job = full_job(workers=1, template=make_template(containers=containers, initContainers=containers))
    assert min_resources(job) == {"cpu": quantity.render(quantity.total([(4, {"cpu": 1})])["cpu"])}


ALL = policy(queue="research", priorityClass="high", scheduleTimeoutSeconds=60, minResources={})


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        pytest.param(VOLCANO, policy(), {"priorityClassName": ""}, id="Volcano, as it comes"),
        pytest.param(VOLCANO, ALL, {"priorityClassName": "high", "queue": "research"}, id="Volcano has no timeout"),
        pytest.param(PLUGINS, policy(), {}, id="scheduler-plugins, as it comes"),
        pytest.param(PLUGINS, ALL, {"scheduleTimeoutSeconds": 60}, id="scheduler-plugins has no queue and no priority"),
    ],
)
def test_each_scheduler_is_told_what_it_understands(
    kind: ChildKind, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    spec = build_pod_group(full_job(runPolicy=given), kind)["spec"]
    assert spec == {"minMember": 2, "minResources": {}, **expected}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param({}, {"disruptionMode": {"all": {}}}, id="as it comes"),
        pytest.param({"runPolicy": ALL}, {"disruptionMode": {"all": {}}, "priorityClassName": "high"}, id="a priority"),
        pytest.param(
            {"template": make_template(priorityClassName="low")},
            {"disruptionMode": {"all": {}}, "priorityClassName": "low"},
            id="the priority of all templates",
        ),
        pytest.param(
            {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}, "workers": 4},
            {"disruptionMode": {"single": {}}},
            id="an elastic job may lose single pods",
        ),
    ],
)
def test_kubernetes_own_group(case: dict[str, Any], expected: dict[str, Any]) -> None:
    body = build_pod_group(full_job(**case), NATIVE)
    assert (body["apiVersion"], body["kind"]) == ("scheduling.k8s.io/v1beta1", "PodGroup")
    assert body["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}, **expected}


def test_it_is_the_jobs_own_with_the_jobs_annotations() -> None:
    annotations = {"team": "a", names.ANNOTATION_LAST_APPLIED: "{}"}
    job = full_job(name="x", meta={"annotations": annotations})
    body = build_pod_group(job, VOLCANO)
    assert (body["apiVersion"], body["kind"]) == ("scheduling.volcano.sh/v1beta1", "PodGroup")
    assert (body["metadata"]["name"], body["metadata"]["ownerReferences"]) == ("x", owner.references(job))
    assert set(body["metadata"]["annotations"]) == {"team", names.ANNOTATION_SPEC_HASH}
