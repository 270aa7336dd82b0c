"""README's cluster section, as it is written, in a fresh clone: from `make install` to the example's accuracy."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import CACHE
from e2e.faults import on_kind
from e2e.kubectl import Kubectl
from tests.readme import CLUSTER, clone, follow
from tests.shell.transcript import keep

# It brings its images into the nodes, and uses the namespace `default`, as README does.
pytestmark = [pytest.mark.alone]


@pytest.fixture
def without_the_job(cluster: Kubectl) -> Iterator[None]:
    """README's job is there neither before nor after the test."""
    cluster("delete", "ptj", "digits", "--ignore-not-found")
    yield
    cluster("delete", "ptj", "digits", "--ignore-not-found")


@pytest.mark.skipif(not on_kind(), reason="README uses the kind cluster of this machine")
@pytest.mark.usefixtures("operator", "without_the_job")
def test_the_cluster_section_works_as_written(tmp_path: Path) -> None:
    checkout = clone(tmp_path / "clone")
    done = follow(CLUSTER, checkout, seconds=1100, programs=CACHE)
    assert done.status == 0, done.transcript
    assert "pytorchjob-operator is ready in namespace pytorchjob-system" in done.transcript
    assert "pytorchjob.kubeflow.org/digits condition met" in done.transcript
    assert re.search(r"accuracy=0\.9\d", done.transcript), done.transcript
    keep("cluster", done, checkout, {})
