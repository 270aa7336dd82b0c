"""One run, from its beginning in the log to the verdict, with a cluster that answers as it is told."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.lanes.plan import NOT_APPLICABLE
from tests.rights.run import ACCOUNT, SPACE, USER, Run

ROLE = {"kind": "ClusterRole", "metadata": {"name": "x"}}
RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
SUBJECT = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SPACE}
BINDING = {
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "x"},
    "roleRef": {"kind": "ClusterRole", "name": "x"},
    "subjects": [SUBJECT],
}


@dataclass
class Cluster:
    """What kubectl is asked, and what it answers."""

    folder: Path
    rules: list[dict[str, Any]] = field(default_factory=lambda: [RULE])
    installed: bool = False
    asked: list[str] = field(default_factory=list)

    def run(self) -> Run:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        return Run(self.folder, self.kubectl, lambda: self.asked.append("uninstall"), ())

    @property
    def log(self) -> Path:
        return self.folder / "audit/audit.log"

    def kubectl(self, *arguments: str) -> str:
        self.asked.append(" ".join(arguments[:2]))
        if arguments[:2] == ("get", "namespace"):
            return f"namespace/{SPACE}\n" if self.installed else ""
        return json.dumps({"items": [{**ROLE, "rules": self.rules}, BINDING]})

    def request(self, verb: str, resource: str = "pods", decision: str = "allow") -> None:
        """The operator requests something."""
        entry = {
            "stage": "ResponseComplete",
            "verb": verb,
            "requestURI": "/",
            "user": {"username": USER},
            "objectRef": {"resource": resource, "namespace": "a", "name": "b"},
            "annotations": {"authorization.k8s.io/decision": decision},
        }
        with self.log.open("a") as file:
            file.write(json.dumps(entry) + "\n")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    made.run()
    made.log.touch()
    return made


def verdict(cluster: Cluster) -> str:
    return cluster.run().table.read_text().splitlines()[0]


def test_a_run_that_uses_each_right_is_green(cluster: Cluster) -> None:
    assert cluster.run().begin() == 0
    cluster.request("create")
    assert cluster.run().check() == 0
    assert verdict(cluster) == "Rights: 1. Used by the end-to-end tests: 1. Exceptions: 0. Differences: 0."


def test_what_was_requested_before_the_run_does_not_count(cluster: Cluster) -> None:
    cluster.request("create")
    cluster.run().begin()
    assert cluster.run().check() == 1
    assert verdict(cluster).endswith("Differences: 1.")


def test_a_refused_request_fails_the_run(cluster: Cluster) -> None:
    cluster.run().begin()
    cluster.request("create")
    cluster.request("get", "secrets", "forbid")
    assert cluster.run().check() == 1
    assert "- used, not granted: get secrets b in namespace a" in cluster.run().table.read_text()


def test_an_operator_without_any_right_is_no_success(cluster: Cluster) -> None:
    cluster.rules = []
    cluster.run().begin()
    assert cluster.run().check() == 1


def test_a_log_that_was_begun_again_is_no_log_of_the_run(cluster: Cluster) -> None:
    cluster.request("create")
    cluster.run().begin()
    cluster.log.write_text("")
    assert cluster.run().check() == 1


@pytest.mark.parametrize(
    ("installed", "asked"),
    [
        pytest.param(True, ["get namespace", "uninstall", "delete namespace"], id="is removed with its Secret"),
        pytest.param(False, ["get namespace"], id="is not there"),
    ],
)
def test_an_earlier_installation(cluster: Cluster, installed: bool, asked: list[str]) -> None:
    cluster.installed = installed
    cluster.run().begin()
    assert cluster.asked == asked


def test_a_cluster_without_a_log_is_left_alone_and_the_comparison_does_not_apply(cluster: Cluster) -> None:
    cluster.installed = True
    assert cluster.run().begin(has_log=False) == 0
    assert cluster.run().check() == NOT_APPLICABLE
    assert cluster.asked == []
    assert "writes no audit log" in verdict(cluster)


def test_until_all_tests_have_passed_there_is_no_table_of_an_earlier_run(cluster: Cluster) -> None:
    cluster.run().begin()
    cluster.request("create")
    cluster.run().check()
    cluster.run().begin()
    assert "not every end-to-end test has passed" in verdict(cluster)


def test_the_rights_of_each_installation_count(cluster: Cluster) -> None:
    cluster.run().begin()
    cluster.run().keep_roles()
    cluster.request("create")
    cluster.rules = [{**RULE, "verbs": ["list"]}]
    cluster.request("list")
    assert cluster.run().check() == 0
    assert verdict(cluster) == "Rights: 2. Used by the end-to-end tests: 2. Exceptions: 0. Differences: 0."


def test_installations_of_an_earlier_run_do_not_count(cluster: Cluster) -> None:
    cluster.run().keep_roles()
    cluster.run().begin()
    cluster.rules = [{**RULE, "verbs": ["list"]}]
    cluster.request("list")
    assert cluster.run().check() == 0
