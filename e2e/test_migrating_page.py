"""docs/migrating.md on a cluster with nodes: from the real training-operator v1 with a job that trains, and back again.

v1 runs from its own manifests, with its own program. Only the image of its init container is made up, with `nslookup`.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from e2e.conftest import CACHE, KUBECONFIG, RESTRICTED, ROOT, fresh_namespace, program
from e2e.faults import on_kind
from e2e.kubectl import Kubectl, until
from e2e.pages import REGISTRY, bring, forget, without_operator
from e2e.test_takeover import TEMPLATE, TRIO, pods, steps
from tests.apiserver import v1_process
from tests.shell.blocks import named
from tests.shell.following import follow_text

pytestmark = [
    pytest.mark.alone,
    pytest.mark.long,
    pytest.mark.skipif(not on_kind(), reason="it brings v1's image into the nodes"),
]
PAGE = "docs/migrating.md"
INIT = "alpine:3.10"
"""The image of v1's init container, by default."""
NSLOOKUP = "#!/usr/bin/env python3\nimport socket, sys\nsocket.gethostbyname(sys.argv[1])\n"


@pytest.fixture
def v1(cluster: Kubectl, operator: Kubectl, tmp_path: Path) -> Iterator[Path]:
    """The sources of v1, which runs instead of this operator."""
    with without_operator(cluster), installed(cluster, tmp_path) as sources:
        yield sources


@contextmanager
def installed(cluster: Kubectl, folder: Path) -> Iterator[Path]:
    """Install v1 as its own page says."""
    sources = v1_process.crd().parents[3]
    overlay = str(sources / "manifests/overlays/standalone")
    image = operators_image(cluster("kustomize", overlay))
    shutil.copy(program(v1_process.PROGRAM), folder / "manager")
    bring(cluster, image, "FROM scratch\nCOPY manager /manager\n", folder)
    (folder / "nslookup").write_text(NSLOOKUP)
    (folder / "nslookup").chmod(0o755)
    bring(cluster, INIT, "FROM pytorchjob/operator:dev\nCOPY nslookup /usr/local/bin/nslookup\n", folder)
    v1 = Kubectl(cluster.program, KUBECONFIG, "kubeflow")
    v1("apply", "--server-side", "-k", overlay)
    try:
        v1("rollout", "status", "deployment/training-operator", "--timeout=180s")
        yield sources
    finally:
        v1("delete", "-k", overlay, "--ignore-not-found")
        for name in (image, INIT):
            forget(cluster, name)


def operators_image(manifests: str) -> str:
    [deployment] = [found for found in yaml.safe_load_all(manifests) if found["kind"] == "Deployment"]
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


def train(kubectl: Kubectl) -> None:
    """Submit a job of three pods to v1, and wait until it trains."""
    roles = {role: {"replicas": count, "template": TEMPLATE} for role, count in (("Master", 1), ("Worker", 2))}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "x"}}
    text = json.dumps({**job, "spec": {"pytorchReplicaSpecs": roles}})
    # The webhook of v1 answers a moment after its pod is ready.
    until(lambda: kubectl("apply", "-f", "-", stdin=text, check=False), 60)
    until(lambda: steps(kubectl, "x-worker-1"), 120, lambda: kubectl.story("x"))


def types(heading: str, sources: Path) -> str:
    """Run a block of the page; returns what it prints."""
    where = {"KUBECONFIG": str(KUBECONFIG), "REGISTRY": REGISTRY, "V1": str(sources)}
    return follow_text(named(f"{PAGE}: {heading}").text, ROOT, [CACHE], seconds=400, **where)


def test_a_job_trains_on_untouched_over_and_back_again(cluster: Kubectl, v1: Path) -> None:
    with fresh_namespace(cluster) as kubectl:
        # v1's init container has no security context.
        cluster("label", "namespace", kubectl.namespace, RESTRICTED.replace("restricted", "baseline"), "--overwrite")
        train(kubectl)
        before = pods(kubectl)
        assert {*before} == {*TRIO}
        assert "x is valid" in types("What to check first", v1)

        assert "successfully rolled out" in types("Swap", v1)
        until(lambda: kubectl.job("x")["status"].get("observedGeneration"), 60, lambda: kubectl.story("x"))
        assert "x-worker-1" in types("Swap (3)", v1)
        goes_on(kubectl, before)

        assert "successfully rolled out" in types("Going back", v1)
        goes_on(kubectl, before)


def goes_on(kubectl: Kubectl, before: dict[str, tuple[str, int]]) -> None:
    """The same pods train, with the same containers."""
    done = steps(kubectl, "x-worker-1")
    until(lambda: steps(kubectl, "x-worker-1") > done + 5, 60, lambda: kubectl.story("x"))
    assert pods(kubectl) == before
