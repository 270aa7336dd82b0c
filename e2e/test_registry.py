"""README's commands for a cluster with a registry, which the test starts: in a fresh clone, up to the job's accuracy.

A node reaches the registry by the name that this machine uses: each node forwards the port to this machine.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.conftest import CACHE, KUBECONFIG, RELEASE, SYSTEM, install, program
from e2e.faults import docker, on_kind
from e2e.kubectl import Kubectl, until
from e2e.pages import nodes, remove
from tests.ports import free_port
from tests.processes import start
from tests.readme import REGISTRY, Done, clone, execute, with_registry
from tests.shell.blocks import named
from tests.shell.following import follow_text, run_by
from tests.shell.register import FROM_A_REGISTRY, INSTALLING
from tests.shell.transcript import keep

# It pushes and pulls gigabytes, and replaces the operator that other tests use.
pytestmark = [
    pytest.mark.alone,
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not on_kind(), reason="the nodes are containers of this machine's Docker"),
]
_FORWARD = "echo $$ >/run/forward-{port}.pid; exec socat TCP-LISTEN:{port},bind=127.0.0.1,fork TCP:{host}:{port}"
_ANSWERS = "exec 3<>/dev/tcp/127.0.0.1/{port}"


@dataclass(frozen=True)
class Installed:
    """What README's commands did."""

    done: Done
    checkout: Path
    registry: str


@pytest.fixture(scope="module")
def registry(cluster: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry, by the name that this machine and all nodes know it by."""
    port = free_port()
    tmp_path = tmp_path_factory.mktemp("registry")
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    command = [program("registry"), "--address", f"0.0.0.0:{port}", "--folder", str(blobs)]
    process = start(command, tmp_path / "registry.log")
    try:
        with forwarded(nodes(cluster), port):
            yield f"127.0.0.1:{port}/team"
    finally:
        process.kill()
        process.wait(20)
        shutil.rmtree(blobs)


@contextmanager
def forwarded(names: list[str], port: int) -> Iterator[None]:
    """Forward a port of each of these nodes to this machine, meanwhile."""
    for name in names:
        host = docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}", name)
        docker("exec", "--detach", name, "sh", "-c", _FORWARD.format(port=port, host=host))
    try:
        for name in names:
            until(lambda node=name: answers(node, port), 20, f"node {name} does not forward to the registry")
        yield
    finally:
        for name in names:
            docker("exec", name, "sh", "-c", f"kill $(cat /run/forward-{port}.pid); rm /run/forward-{port}.pid")


def answers(node: str, port: int) -> bool:
    """Whether the port of a node is open."""
    command = ["docker", "exec", node, "bash", "-c", _ANSWERS.format(port=port)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


@pytest.fixture(scope="module")
def installed(
    operator: Kubectl, cluster: Kubectl, registry: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """README's commands with this registry; afterwards the operator that other tests use."""
    tmp_path = tmp_path_factory.mktemp("user")
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    shutil.copy(KUBECONFIG, home / ".kube/config")
    checkout = clone(tmp_path / "clone")
    cluster("delete", "ptj", "digits", "--ignore-not-found")
    script = "\n".join(with_registry()).replace(REGISTRY, registry)
    caches = {"HOME": str(home), "XDG_CACHE_HOME": str(CACHE.parent.parent)}
    try:
        yield Installed(
            execute("registry", script, checkout, seconds=3000, programs=CACHE, **caches), checkout, registry
        )
    finally:
        remove(cluster)
        install(cluster)
        pushed = docker("images", "--format", "{{.Repository}}:{{.Tag}}", f"{registry}/*").split()
        docker("rmi", *pushed)


@pytest.fixture(scope="module")
def pushed(installed: Installed) -> Installed:
    """The same after the page's first block, which pushes the chart too."""
    assert installed.done.status == 0, installed.done.transcript
    where = {"REGISTRY": installed.registry, "PLAIN_HTTP": "1"}
    printed = follow_text(named(f"{INSTALLING}: From a registry").text, installed.checkout, [CACHE], 1200, **where)
    assert f"oci://{installed.registry}/charts" in printed
    return installed


def images(cluster: Kubectl, namespace: str, selector: str) -> set[str]:
    pods = cluster.get("pods", "-n", namespace, "-l", selector)["items"]
    return {pod["spec"]["containers"][0]["image"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}


def test_operator_and_job_come_from_the_registry(cluster: Kubectl, installed: Installed) -> None:
    done, registry = installed.done, installed.registry
    assert done.status == 0, done.transcript
    record = json.loads((installed.checkout / "out/release/images.json").read_text())["images"]
    assert all(image["reference"].startswith(f"{registry}/pytorchjob-") for image in record.values())
    assert images(cluster, SYSTEM, f"app.kubernetes.io/name={RELEASE}") == {record["operator"]["reference"]}
    assert images(cluster, "default", "training.kubeflow.org/job-name=digits") == {record["examples"]["reference"]}
    assert re.search(r"accuracy=0\.9\d", done.transcript), done.transcript
    keep("registry", done, installed.checkout, {registry: REGISTRY})


@pytest.mark.parametrize("key", run_by(FROM_A_REGISTRY))
def test_the_page_installs_from_the_registry(cluster: Kubectl, pushed: Installed, key: str) -> None:
    remove(cluster)
    where = {"KUBECONFIG": str(KUBECONFIG), "REGISTRY": pushed.registry}
    printed = follow_text(named(key).text, pushed.checkout, [CACHE], seconds=400, **where)
    assert "successfully rolled out" in printed
    record = json.loads((pushed.checkout / "out/release/images.json").read_text())["images"]
    assert images(cluster, SYSTEM, f"app.kubernetes.io/name={RELEASE}") == {record["operator"]["reference"]}
