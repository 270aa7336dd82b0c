"""The cluster of `make cluster`, the operator installed as a user would, and a fresh namespace for each test."""

import fcntl
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.kubectl import Kubectl
from tests.rights import __main__ as rights

ROOT = Path(__file__).parent.parent
KUBECONFIG = ROOT / "out" / "kubeconfig"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytorchjob-operator" / "bin"
SYSTEM = "pytorchjob-system"
RELEASE = "pytorchjob-operator"
WITH = "--set jobNetworkPolicies.enabled=true"
"""What is off unless a user asks for it, and tested here."""
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs the cluster; a real job takes longer than a unit test."""
    for item in items:
        if Path(item.path).is_relative_to(ROOT / "e2e"):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(1800))


def program(name: str) -> str:
    """A program of the cache, or of PATH."""
    cached = CACHE / name
    found = str(cached) if cached.exists() else shutil.which(name)
    if not found:
        pytest.fail(f'{name} is missing: run `make binaries`, or leave these tests out with WITHOUT="cluster"')
    return found


@pytest.fixture(scope="session")
def cluster() -> Kubectl:
    if not KUBECONFIG.exists():
        pytest.fail('no cluster: run `make cluster`, or leave these tests out with WITHOUT="cluster"')
    kubectl = Kubectl(program("kubectl"), KUBECONFIG, "default")
    kubectl("get", "nodes")
    return kubectl


@pytest.fixture(scope="session")
def operator(cluster: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """The operator, installed once for all processes of this test run: the first one installs, the others wait."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return install(cluster)
    done = tmp_path_factory.getbasetemp().parent / f"installed-{run}"
    with open(done.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            install(cluster)
            done.touch()
    return Kubectl(cluster.program, KUBECONFIG, SYSTEM)


def install(cluster: Kubectl) -> Kubectl:
    """Install the operator as `make install` does, into a namespace that enforces Pod Security `restricted`."""
    system = Kubectl(cluster.program, KUBECONFIG, SYSTEM)
    if SYSTEM not in cluster("get", "namespaces", "-o", "name"):
        cluster("create", "namespace", SYSTEM)
    cluster("label", "--overwrite", "namespace", SYSTEM, RESTRICTED)
    # What `make install` does, with the images that `make cluster` has brought into the nodes.
    done = subprocess.run(
        [str(ROOT / "install" / "install.sh"), "chart"],
        env={**os.environ, "KUBECONFIG": str(KUBECONFIG), "HELM_ARGS": f"{WITH} {os.environ.get('HELM_ARGS', '')}"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr + system("describe", "pods", check=False)
    system("rollout", "status", f"deployment/{RELEASE}", "--timeout=180s")
    rights.this_run().keep_roles()
    return system


@pytest.fixture
def kubectl(operator: Kubectl) -> Iterator[Kubectl]:
    with fresh_namespace(operator) as fresh:
        yield fresh


@contextmanager
def fresh_namespace(operator: Kubectl) -> Iterator[Kubectl]:
    """A fresh namespace that enforces Pod Security `restricted`, with the operator watching."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    operator("create", "namespace", name)
    operator("label", "namespace", name, RESTRICTED)
    try:
        yield Kubectl(operator.program, KUBECONFIG, name)
    finally:
        operator("delete", "namespace", name, "--wait=false")
