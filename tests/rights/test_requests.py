"""Which requests of one user an audit log has."""

import json
from collections import Counter
from typing import Any

import pytest

from tests.rights.requests import Request, requests

USER = "system:serviceaccount:system:operator"
REASON = 'RBAC: allowed by ClusterRoleBinding "x" of ClusterRole "y" to ServiceAccount "operator/system"'


def line(user: str = USER, decision: str = "allow", **fields: Any) -> bytes:
    """One entry of the log."""
    annotations = {"authorization.k8s.io/decision": decision} if decision else {}
    annotations |= {"authorization.k8s.io/reason": REASON} if decision == "allow" else {}
    entry = {"stage": "ResponseComplete", "verb": "get", "requestURI": "/", "user": {"username": user}}
    return json.dumps({**entry, "annotations": annotations, **fields}).encode() + b"\n"


POD = {"resource": "pods", "namespace": "a", "name": "x"}
STATUS = {"resource": "sets", "subresource": "status", "apiGroup": "x.org", "namespace": "a", "name": "x"}
ONE = Request("", "pods", "get", "a", "x", binding="x")
WATCH: dict[str, Any] = {"verb": "watch", "objectRef": {"resource": "pods"}}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([line(objectRef=POD)], {ONE: 1}, id="one"),
        pytest.param([line(objectRef=POD)] * 3, {ONE: 3}, id="each is counted"),
        pytest.param([line(objectRef=POD, responseStatus={"code": 404})], {ONE: 1}, id="an allowed one may fail"),
        pytest.param(
            [line(objectRef=POD, responseStatus={"code": 403})], {ONE: 1}, id="a quota refuses it, not the authorizer"
        ),
        pytest.param(
            [line(objectRef=STATUS)],
            {Request("x.org", "sets/status", "get", "a", "x", binding="x"): 1},
            id="a subresource",
        ),
        pytest.param([line(requestURI="/apis?timeout=1")], {Request("", "/apis", "get", binding="x"): 1}, id="a path"),
        pytest.param(
            [line(objectRef=POD, decision="forbid")],
            {Request("", "pods", "get", "a", "x", refused=True): 1},
            id="refused",
        ),
        pytest.param([line(objectRef=POD, decision="")], {}, id="rejected by a busy server before it was judged"),
        pytest.param(
            [line(**WATCH, stage="ResponseStarted"), line(**WATCH)],
            {Request("", "pods", "watch", binding="x"): 1},
            id="a watch that has ended is one",
        ),
        pytest.param(
            [line(**WATCH, stage="ResponseStarted")], {Request("", "pods", "watch", binding="x"): 1}, id="an open watch"
        ),
        pytest.param(
            [line(**WATCH, decision="forbid")], {Request("", "pods", "watch", refused=True): 1}, id="a refused watch"
        ),
        pytest.param([line("system:serviceaccount:system:other", objectRef=POD)], {}, id="another user"),
        pytest.param([line("admin", objectRef={**POD, "name": USER})], {}, id="another user that names this one"),
        pytest.param([line(objectRef=POD)[:-1]], {}, id="a line in writing"),
        pytest.param([], {}, id="nothing"),
    ],
)
def test_requests(lines: list[bytes], expected: dict[Request, int]) -> None:
    assert requests(lines, USER) == Counter(expected)
