"""Rights and requests are the same, verb by verb, or each difference is named with what to do."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.rights.compare import differences
from tests.rights.exceptions import Exemption
from tests.rights.granted import Right
from tests.rights.requests import Request
from tests.rights.table import page

HOME = "system"
CREATE = Right("", "pods", "create")
CREATED = Request("", "pods", "create", "a", "x", binding="operator")
KEY = Right("", "secrets", "get", HOME, "key")
KEY_READ = Request("", "secrets", "get", HOME, "key", binding="operator")
LEASES = Right("", "leases", "update", HOME)
GROUPS = Exemption("x.org", "groups", frozenset(["get"]), "nothing serves them", "tests/x.py::test_x")
GROUP = Right("x.org", "groups", "get")
GROUP_READ = Request("x.org", "groups", "get", "a", "x", binding="operator")

SAME = [
    pytest.param([], [], id="nothing"),
    pytest.param([CREATE, KEY], [CREATED, KEY_READ], id="each right is used, each request granted"),
    pytest.param([CREATE], [CREATED, Request("", "pods", "create", HOME, "x")], id="also in its own namespace"),
    pytest.param(
        [Right("", "pods", "list")], [Request("", "pods", "list", binding="operator")], id="in all namespaces at once"
    ),
    pytest.param([Right("", "nodes", "get")], [Request("", "nodes", "get", "", "n")], id="on what has no namespace"),
    pytest.param(
        [Right("", "leases", "create", HOME)], [Request("", "leases", "create", HOME, "x")], id="a create has no name"
    ),
    pytest.param(
        [LEASES], [Request("", "leases", "update", HOME, name) for name in "ab"], id="on several names of a namespace"
    ),
    pytest.param(
        [],
        [Request("", "/openid/v1/jwks", "get", binding="system:service-account-issuer-discovery")],
        id="what Kubernetes grants to every service account",
    ),
]


@pytest.mark.parametrize(("rights", "made"), SAME)
def test_no_difference(rights: list[Right], made: list[Request]) -> None:
    assert differences(rights, made, [], HOME) == []


DIFFERENT = [
    pytest.param([CREATE], [], ["granted, not used: create pods in all namespaces"], id="unused"),
    pytest.param(
        [CREATE, Right("", "pods", "delete")],
        [CREATED],
        ["granted, not used: delete pods in all namespaces"],
        id="one verb of two",
    ),
    pytest.param(
        [Right("", "pods", "patch")],
        [Request("", "pods/status", "patch", "a", "x", binding="operator")],
        [
            "granted, not used: patch pods in all namespaces",
            "used, not granted: patch pods/status x in namespace a: allowed by the binding operator",
        ],
        id="a subresource is another resource",
    ),
    pytest.param(
        [KEY, Right("", "secrets", "get", HOME, "other")],
        [KEY_READ],
        ["granted, not used: get secrets named other in namespace system"],
        id="one name of two",
    ),
    pytest.param(
        [CREATE],
        [Request("", "pods", "create", "a", "x", refused=True)],
        [
            "granted, not used: create pods in all namespaces",
            "used, not granted: create pods x in namespace a: the API server refused it",
        ],
        id="what is refused is no use",
    ),
    pytest.param(
        [],
        [Request("x.org", "sets/status", "get", "a", "x", refused=True)],
        ["used, not granted: get sets.x.org/status x in namespace a: the API server refused it"],
        id="refused",
    ),
    pytest.param(
        [],
        [Request("", "pods", "list", binding="cluster-admin")],
        ["used, not granted: list pods: allowed by the binding cluster-admin, which is not the chart's"],
        id="granted by a role of somebody else",
    ),
    pytest.param(
        [Right("", "leases", "get")],
        [Request("", "leases", "get", HOME, name) for name in "ab"],
        ["too wide: get leases in all namespaces: it is used in namespace system only"],
        id="a ClusterRole for one namespace",
    ),
    pytest.param(
        [LEASES],
        [Request("", "leases", "update", HOME, "x")],
        ["too wide: update leases in namespace system: it is used on x only"],
        id="a Role without the name",
    ),
    pytest.param(
        [Right("", "pods", "*")],
        [],
        ["wildcard: * pods in all namespaces"],
        id="any verb",
    ),
    pytest.param([Right("*", "pods", "get")], [], ["wildcard: get pods.* in all namespaces"], id="any group"),
]


@pytest.mark.parametrize(("rights", "made", "expected"), DIFFERENT)
def test_each_difference_is_named(rights: list[Right], made: list[Request], expected: list[str]) -> None:
    _starts(differences(rights, made, [], HOME), expected)


@pytest.mark.parametrize(
    ("rights", "made", "expected"),
    [
        pytest.param([GROUP], [], [], id="granted and not used"),
        pytest.param([GROUP], [GROUP_READ], ["exception used: get groups.x.org in all namespaces"], id="used"),
        pytest.param([], [], ["exception not granted: get groups.x.org"], id="not granted"),
        pytest.param(
            [GROUP, Right("x.org", "groups", "list")],
            [],
            ["granted, not used: list groups.x.org in all namespaces"],
            id="for one verb, not for another",
        ),
        pytest.param(
            [],
            [Request("x.org", "groups", "get", refused=True)],
            [
                "used, not granted: get groups.x.org: the API server refused it",
                "exception not granted: get groups.x.org",
            ],
            id="no excuse for what is refused",
        ),
    ],
)
def test_an_exception_holds_only_while_the_right_is_granted_and_not_used(
    rights: list[Right], made: list[Request], expected: list[str]
) -> None:
    _starts(differences(rights, made, [GROUPS], HOME), expected)


@pytest.mark.parametrize(
    ("rights", "made", "expected"),
    [
        pytest.param([], [], [], id="not granted"),
        pytest.param([GROUP], [], [], id="granted and not used"),
        pytest.param([GROUP], [GROUP_READ], ["exception used: get groups.x.org in all namespaces"], id="used"),
    ],
)
def test_an_exception_for_an_option_of_the_chart_need_not_be_granted(
    rights: list[Right], made: list[Request], expected: list[str]
) -> None:
    _starts(differences(rights, made, [replace(GROUPS, optional=True)], HOME), expected)


def _starts(found: list[str], expected: list[str]) -> None:
    assert len(found) == len(expected), found
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True)), found


def test_the_page_has_each_right_with_its_requests_and_each_exception_with_its_reason() -> None:
    own = Request("", "/api", "get", binding="system:discovery")
    counted = Counter({CREATED: 2, Request("", "pods", "create", "b", "y"): 3, KEY_READ: 1, own: 7})
    text = page([CREATE, KEY, GROUP], counted, [GROUPS], [])
    assert text.splitlines() == [
        "Rights: 3. Used by the end-to-end tests: 2. Exceptions: 1. Differences: 0.",
        "",
        "| right on | verb | named | in namespace | requests |",
        "| --- | --- | --- | --- | --- |",
        "| pods | create |  | (all) | 5 |",
        "| secrets | get | key | system | 1 |",
        "| groups.x.org | get |  | (all) | none: nothing serves them (`tests/x.py::test_x`) |",
        "",
        "By roles that Kubernetes binds to every service account:",
        "",
        "| path | verb | binding | requests |",
        "| --- | --- | --- | --- |",
        "| /api | get | system:discovery | 7 |",
    ]


def test_the_page_begins_with_the_differences() -> None:
    text = page([CREATE], Counter(), [], ["granted, not used: create pods"])
    verdict = "Rights: 1. Used by the end-to-end tests: 0. Exceptions: 0. Differences: 1."
    assert text.startswith(f"{verdict}\n\n- granted, not used: create pods\n\n| ")
