"""Shell blocks that install, upgrade and remove the operator, as they are written, on a cluster with nodes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.conftest import CACHE, KUBECONFIG, RELEASE, ROOT, SYSTEM
from e2e.faults import on_kind
from e2e.kubectl import Kubectl, until
from e2e.pages import IMAGE, REGISTRY, remove, without_operator
from tests.chart.conftest import named_manifests
from tests.shell.blocks import named
from tests.shell.following import follow_text, run_by
from tests.shell.register import INSTALL_PAGES, INSTALLING

# The operator that other tests use is removed, and installed again at the end.
pytestmark = [
    pytest.mark.alone,
    pytest.mark.long,
    pytest.mark.skipif(not on_kind(), reason="the nodes have the image already, under the name of a registry"),
]
TEAMS = ("team-a", "team-b")


@pytest.fixture(scope="module")
def cluster_with_image(operator: Kubectl, cluster: Kubectl) -> Iterator[Kubectl]:
    """All nodes have the operator's image, as if they had pulled it from the reader's registry."""
    with without_operator(cluster):
        yield cluster
    cluster("delete", "namespace", *TEAMS, "--ignore-not-found", "--wait=false")


@dataclass(frozen=True)
class Reader:
    """A user who stands in the root of a clone."""

    cluster: Kubectl
    checkout: Path

    def types(self, key: str) -> str:
        """Run a block of a page; returns what it prints."""
        text = named(key).text
        # `make install` takes REGISTRY as its knob: on kind it needs none.
        registry = {"REGISTRY": REGISTRY} if "$REGISTRY" in text else {}
        return follow_text(text, self.checkout, [CACHE], seconds=600, KUBECONFIG=str(KUBECONFIG), **registry)


def nothing(reader: Reader) -> None:
    remove(reader.cluster)


def released(reader: Reader) -> None:
    nothing(reader)
    reader.types(f"{INSTALLING}: Helm")


def upgraded(reader: Reader) -> None:
    released(reader)
    reader.types(f"{INSTALLING}: Upgrading (2)")


def teams(reader: Reader) -> None:
    nothing(reader)
    for team in TEAMS:
        reader.cluster("create", "namespace", team)


@dataclass(frozen=True)
class Case:
    """What a page takes for granted, and what it promises."""

    before: Callable[[Reader], None]
    prints: str
    image: str = IMAGE


CASES = {
    "charts/pytorchjob-operator/README.md: pytorchjob-operator": Case(nothing, "Phase:          Succeeded"),
    f"{INSTALLING}: Helm": Case(nothing, "Phase:          Succeeded"),
    f"{INSTALLING}: kustomize": Case(nothing, "successfully rolled out"),
    f"{INSTALLING}: Only some namespaces": Case(teams, "is ready in namespace", "pytorchjob/operator:dev"),
    f"{INSTALLING}: Upgrading (2)": Case(released, "has been upgraded"),
    f"{INSTALLING}: Upgrading (3)": Case(upgraded, "Rollback was a success"),
}


@pytest.mark.parametrize("key", run_by(INSTALL_PAGES))
def test_a_block_installs_what_its_page_promises(cluster_with_image: Kubectl, tmp_path: Path, key: str) -> None:
    case, reader = CASES[key], Reader(cluster_with_image, ROOT)
    case.before(reader)
    if key == f"{INSTALLING}: kustomize":
        named_manifests(tmp_path, f"{REGISTRY}/{RELEASE}")
        reader = Reader(cluster_with_image, tmp_path)
    assert case.prints in reader.types(key)
    system = Kubectl(cluster_with_image.program, KUBECONFIG, SYSTEM)
    containers = system.get("deployment", RELEASE)["spec"]["template"]["spec"]["containers"]
    assert [container["image"] for container in containers] == [case.image]
    # Not each block waits for both replicas: `helm test` succeeds as soon as one answers.
    until(
        lambda: system.get("deployment", RELEASE)["status"].get("readyReplicas") == 2,
        story=lambda: system("get", "pods"),
    )
