"""docs/cluster.md as it is written, in a fresh clone: a second cluster beside that of the other tests."""

from pathlib import Path

import pytest

from e2e.conftest import CACHE
from e2e.faults import docker, on_kind
from e2e.kubectl import Kubectl
from tests.readme import clone
from tests.shell.blocks import named
from tests.shell.following import follow_text

# Two clusters need twice the memory, and one of them is made from the start.
pytestmark = [
    pytest.mark.alone,
    pytest.mark.long,
    pytest.mark.skipif(not on_kind(), reason="the page makes a kind cluster"),
]
NAME = "pages"


def test_a_second_cluster_comes_and_goes_beside_the_first(cluster: Kubectl, tmp_path: Path) -> None:
    checkout = clone(tmp_path / "clone")
    printed = follow_text(named("docs/cluster.md: The cluster").text, checkout, [CACHE], seconds=1700, CLUSTER=NAME)
    assert f"{NAME}-worker3 " in printed
    assert docker("ps", "--all", "--quiet", "--filter", f"label=io.x-k8s.kind.cluster={NAME}") == ""
    assert not (checkout / "out/kubeconfig").exists()
    cluster("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")
