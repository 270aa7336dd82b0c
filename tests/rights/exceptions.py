"""The rights that the end-to-end tests cannot use: why, and which test uses them."""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.rights.granted import Right
from tests.rights.requests import Request

_TESTS = "tests/chart/test_operator_rights.py"
_WHOLE = frozenset(["get", "list", "watch", "create", "update", "delete"])
_NO_SCHEDULER = "kind has no gang scheduler, and so no PodGroups"
_GANG = f"{_TESTS}::test_the_rights_suffice_for_a_gang_that_is_scaled"
_NATIVE = "tests/apiserver/test_real_gangs.py::test_a_gang_without_room_for_its_last_pod_has_no_pod_on_any_node"
_OWNERS = f"{_TESTS}::test_without_the_right_on_finalizers_the_api_server_refuses_the_children_of_a_job"


@dataclass(frozen=True)
class Exemption:
    """Rights on one resource that no end-to-end test uses."""

    group: str
    resource: str
    verbs: frozenset[str]
    reason: str
    test: str
    """The test outside `e2e/` that needs them."""
    optional: bool = False
    """The chart grants them only if a value asks for it."""

    def concerns(self, one: Right | Request) -> bool:
        """Return whether a right or a request is of this kind."""
        return (one.group, one.resource) == (self.group, self.resource) and one.verb in self.verbs


EXCEPTIONS = (
    Exemption("scheduling.volcano.sh", "podgroups", _WHOLE, _NO_SCHEDULER, _GANG),
    Exemption("scheduling.x-k8s.io", "podgroups", _WHOLE, _NO_SCHEDULER, _GANG),
    Exemption("scheduling.k8s.io", "podgroups", _WHOLE, "Kubernetes has PodGroups of its own since 1.37", _NATIVE),
    Exemption(
        "kubeflow.org",
        "pytorchjobs/finalizers",
        frozenset(["update"]),
        "no request needs it: an admission plugin that kind does not enable checks it when a child is created",
        _OWNERS,
    ),
    Exemption(
        "networking.k8s.io",
        "networkpolicies",
        frozenset(["get", "update"]),
        "only an operator that wants another policy than the one before it updates a policy",
        f"{_TESTS}::test_the_rights_suffice_for_a_network_policy_that_an_older_operator_made",
        optional=True,
    ),
)


def exemption(one: Right | Request, exceptions: Iterable[Exemption]) -> Exemption | None:
    """Return the exception for a right or a request."""
    return next((found for found in exceptions if found.concerns(one)), None)
