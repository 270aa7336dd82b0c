"""Which rights roles and bindings give to one service account."""

from typing import Any

import pytest

from tests.rights.granted import Right, granted
from tests.rights.requests import Request

SPACE, ACCOUNT = "system", "operator"
SUBJECT = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SPACE}


def role(name: str, namespace: str = "", **rule: list[str]) -> dict[str, Any]:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"kind": "Role" if namespace else "ClusterRole", "metadata": meta, "rules": [rule]}


def bound(to: dict[str, Any], subject: dict[str, str] | None = None, namespace: str = "") -> dict[str, Any]:
    meta = {"name": "x", **({"namespace": namespace} if namespace else {})}
    reference = {"kind": to["kind"], "name": to["metadata"]["name"]}
    return {"kind": "Binding", "metadata": meta, "roleRef": reference, "subjects": [subject or SUBJECT]}


PODS = role("pods", apiGroups=[""], resources=["pods"], verbs=["get", "list"])
OWN = role("own", SPACE, apiGroups=[""], resources=["secrets"], verbs=["get"], resourceNames=["a", "b"])
GROUPS = role("groups", apiGroups=["x.org", "y.org"], resources=["sets", "sets/status"], verbs=["patch"])
PATH = role("path", nonResourceURLs=["/healthz"], verbs=["get"])
EVERYWHERE = [Right("", "pods", "get"), Right("", "pods", "list")]
CASES = [
    pytest.param([PODS, bound(PODS)], EVERYWHERE, id="a ClusterRole holds in all namespaces"),
    pytest.param([PODS, bound(PODS), bound(PODS)], EVERYWHERE, id="a right that is given twice is one"),
    pytest.param(
        [PODS, bound(PODS, namespace="a")],
        [Right("", "pods", "get", "a"), Right("", "pods", "list", "a")],
        id="a RoleBinding limits a ClusterRole to its namespace",
    ),
    pytest.param(
        [OWN, bound(OWN, namespace=SPACE)],
        [Right("", "secrets", "get", SPACE, "a"), Right("", "secrets", "get", SPACE, "b")],
        id="a right for each name",
    ),
    pytest.param(
        [GROUPS, bound(GROUPS)],
        [
            Right("x.org", "sets", "patch"),
            Right("x.org", "sets/status", "patch"),
            Right("y.org", "sets", "patch"),
            Right("y.org", "sets/status", "patch"),
        ],
        id="each group has each resource",
    ),
    pytest.param([PATH, bound(PATH)], [Right("", "/healthz", "get")], id="a path"),
    pytest.param([PODS], [], id="a role that is bound to nobody"),
    pytest.param([PODS, bound(PODS, {**SUBJECT, "name": "other"})], [], id="bound to another account"),
    pytest.param([PODS, bound(PODS, {**SUBJECT, "namespace": "other"})], [], id="bound to its namesake elsewhere"),
    pytest.param([PODS, bound(PODS, {"kind": "Group", "name": "system:authenticated"})], [], id="bound to everybody"),
    pytest.param([OWN, bound(OWN, namespace="other")], [], id="a Role of another namespace"),
    pytest.param([bound(PODS)], [], id="a role that is not there"),
    pytest.param([{**PODS, "rules": None}, bound(PODS)], [], id="a role without rules"),
]


@pytest.mark.parametrize(("objects", "expected"), CASES)
def test_rights(objects: list[dict[str, Any]], expected: list[Right]) -> None:
    assert granted(objects, SPACE, ACCOUNT) == expected


GET = Right("", "secrets", "get", "a", "x")


@pytest.mark.parametrize(
    ("right", "request_", "covered"),
    [
        pytest.param(GET, Request("", "secrets", "get", "a", "x"), True, id="the same"),
        pytest.param(GET, Request("", "secrets", "update", "a", "x"), False, id="another verb"),
        pytest.param(GET, Request("", "pods", "get", "a", "x"), False, id="another resource"),
        pytest.param(GET, Request("", "secrets/status", "get", "a", "x"), False, id="a subresource"),
        pytest.param(GET, Request("x.org", "secrets", "get", "a", "x"), False, id="another group"),
        pytest.param(GET, Request("", "secrets", "get", "b", "x"), False, id="another namespace"),
        pytest.param(GET, Request("", "secrets", "get", "a", "y"), False, id="another name"),
        pytest.param(Right("", "pods", "list"), Request("", "pods", "list"), True, id="all namespaces at once"),
        pytest.param(Right("", "pods", "list"), Request("", "pods", "list", "a"), True, id="any namespace"),
        pytest.param(Right("", "pods", "list", "a"), Request("", "pods", "list"), False, id="one is not all of them"),
    ],
)
def test_a_right_covers(right: Right, request_: Request, covered: bool) -> None:
    assert right.covers(request_) is covered
