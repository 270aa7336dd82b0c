"""What the operator may do, cluster-wide and in single namespaces."""

from typing import Any

import pytest

from tests.chart.support import NAME

pytestmark = pytest.mark.helm

COORDINATOR = f"{NAME}-coordinator"
JOBS = {
    ("kubeflow.org", "pytorchjobs"): {"get", "list", "watch", "delete"},
    ("kubeflow.org", "pytorchjobs/status"): {"patch"},
    ("kubeflow.org", "pytorchjobs/finalizers"): {"update"},
    ("", "pods"): {"get", "list", "watch", "create", "delete"},
    ("", "services"): {"get", "list", "watch", "create", "delete"},
    ("", "namespaces"): {"get"},
    ("", "events"): {"create", "patch"},
}
WHOLE = {"get", "list", "watch", "create", "update", "delete"}
SCALING = {("autoscaling", "horizontalpodautoscalers"): WHOLE}
GANGS = {(group, "podgroups"): WHOLE for group in ("scheduling.volcano.sh", "scheduling.x-k8s.io", "scheduling.k8s.io")}
CLOSING = {("networking.k8s.io", "networkpolicies"): WHOLE}
ALL = {**JOBS, **SCALING, **GANGS}
NAMESPACED = 'watchNamespaces=["a","b"]'


def rights(role: Any) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in role["rules"]:
        for key in ((group, resource) for group in rule["apiGroups"] for resource in rule["resources"]):
            found.setdefault(key, set()).update(rule["verbs"])
    return found


def test_all_namespaces_take_one_cluster_role(template: Any) -> None:
    objects = template()
    assert rights(objects["ClusterRole", NAME]) == ALL
    assert objects["ClusterRoleBinding", NAME]["roleRef"]["name"] == NAME
    assert ("Role", NAME) not in objects


def test_single_namespaces_take_the_same_rights_each_and_no_cluster_role(template: Any) -> None:
    objects = template(NAMESPACED)
    roles = [role for (kind, name), role in objects.items() if kind == "Role" and name.split("/")[0] == NAME]
    assert [role["metadata"]["namespace"] for role in roles] == ["a", "b"]
    assert all(rights(role) == ALL for role in roles)
    assert not [kind for kind, _ in objects if kind.startswith("Cluster")]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(["gangScheduling.enabled=false"], {**JOBS, **SCALING}, id="no gangs"),
        pytest.param(["autoscaling.enabled=false"], {**JOBS, **GANGS}, id="no autoscalers"),
        pytest.param(["gangScheduling.enabled=false", "autoscaling.enabled=false"], JOBS, id="neither"),
        pytest.param(["jobNetworkPolicies.enabled=true"], {**ALL, **CLOSING}, id="NetworkPolicies of jobs"),
        pytest.param(["gangScheduling.scheduler=volcano"], ALL, id="a scheduler for all jobs takes no more"),
    ],
)
def test_what_is_not_used_takes_no_rights(template: Any, values: list[str], expected: Any) -> None:
    assert rights(template(*values)["ClusterRole", NAME]) == expected


@pytest.mark.parametrize(
    ("values", "verbs"),
    [
        pytest.param([], {"get", "list", "watch"}, id="all namespaces: nodes are read"),
        pytest.param([NAMESPACED], None, id="single namespaces: they are not"),
        pytest.param(
            [NAMESPACED, "rbac.nodes=true"], {"get", "list", "watch"}, id="single namespaces: they are, if allowed"
        ),
        pytest.param(["stuckPodSeconds=0"], {"list", "watch"}, id="nothing is done about dead ones"),
        pytest.param(["coordinator.enabled=false"], {"get"}, id="nothing is done about those that are announced"),
        pytest.param(["stuckPodSeconds=0", "coordinator.enabled=false"], None, id="nothing is done about either"),
    ],
)
def test_the_right_to_read_nodes_is_a_cluster_role_of_its_own(
    template: Any, values: list[str], verbs: set[str] | None
) -> None:
    objects = template(*values)
    role, binding = (objects.get((kind, f"{NAME}-nodes")) for kind in ("ClusterRole", "ClusterRoleBinding"))
    assert (role is not None, binding is not None) == (verbs is not None, verbs is not None)
    if role and binding:
        assert rights(role) == {("", "nodes"): verbs}
        assert binding["roleRef"]["name"] == role["metadata"]["name"]


@pytest.mark.parametrize(
    ("values", "watches"),
    [([], "true"), ([NAMESPACED], "false"), ([NAMESPACED, "rbac.nodes=true"], "true")],
    ids=["all namespaces", "single namespaces", "single namespaces, with the right"],
)
def test_nodes_are_watched_where_that_is_allowed(template: Any, values: list[str], watches: str) -> None:
    deployment = template(*values)["Deployment", NAME]
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [each["value"] for each in env if each["name"] == "PYTORCHJOB_WATCH_NODES"] == [watches]


@pytest.mark.parametrize("value", ["replicas=2", NAMESPACED], ids=["all namespaces", "single namespaces"])
def test_every_binding_is_to_the_operators_account_alone(template: Any, value: str) -> None:
    bindings = [binding for (kind, _), binding in template(value).items() if kind.endswith("RoleBinding")]
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": "pytorchjob-system"}
    assert bindings
    assert all(binding["subjects"] == [account] for binding in bindings)


@pytest.mark.parametrize("value", ["replicas=2", NAMESPACED], ids=["all namespaces", "single namespaces"])
def test_leader_election_is_one_lease_in_its_own_namespace(template: Any, value: str) -> None:
    role = template(value)["Role", f"{NAME}-leader-election"]
    create, use = role["rules"]
    assert role["metadata"]["namespace"] == "pytorchjob-system"
    assert (create["resources"], create["verbs"]) == (["leases"], ["create"])
    assert (use["resources"], use["resourceNames"], use["verbs"]) == (["leases"], [NAME], ["get", "update"])


@pytest.mark.parametrize("value", ["replicas=2", NAMESPACED], ids=["all namespaces", "single namespaces"])
def test_the_coordinators_secret_is_made_read_and_renewed_in_the_operators_namespace(template: Any, value: str) -> None:
    objects = template(value)
    role, binding = (objects[kind, COORDINATOR] for kind in ("Role", "RoleBinding"))
    create, use = role["rules"]
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "pytorchjob-system"
    assert binding["roleRef"]["name"] == COORDINATOR
    assert create == {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}
    own = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [COORDINATOR]}
    assert use == {**own, "verbs": ["get", "update"]}


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([], id="all namespaces"),
        pytest.param([NAMESPACED], id="single namespaces"),
        pytest.param(["coordinator.enabled=false"], id="no coordinator"),
    ],
)
def test_no_role_has_a_wildcard_or_reads_other_secrets(template: Any, values: list[str]) -> None:
    objects = template(*values)
    roles = [role for (kind, name), role in objects.items() if kind.endswith("Role") and name != COORDINATOR]
    words = {word for role in roles for rule in role["rules"] for part in rule.values() for word in part}
    assert roles
    assert not words & {"*", "secrets", "roles", "rolebindings", "serviceaccounts", "pods/exec", "escalate", "bind"}
    assert (("Role", COORDINATOR) in objects) is ("coordinator.enabled=false" not in values)


@pytest.mark.parametrize(
    ("role", "writes"),
    [
        pytest.param("view", False, id="who may view may only read jobs"),
        pytest.param("edit", True, id="who may edit may write jobs"),
        pytest.param("admin", True, id="an admin may write jobs"),
    ],
)
def test_aggregated_role(template: Any, role: str, writes: bool) -> None:
    made = template()["ClusterRole", f"{NAME}-{role}"]
    assert made["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{role}"] == "true"
    assert ("create" in rights(made)["kubeflow.org", "pytorchjobs"]) is writes
    assert rights(made)["kubeflow.org", "pytorchjobs/status"] == {"get"}
