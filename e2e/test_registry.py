"""With a registry that the test starts: images are pushed, the operator is installed from them, a job pulls its image.

A node reaches the registry as users' nodes reach theirs, by its name: each node forwards the port to this machine.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.conftest import KUBECONFIG, RELEASE, ROOT, SYSTEM, install, program
from e2e.faults import docker, on_kind
from e2e.kubectl import Kubectl
from tests.ports import free_port

# It pushes and pulls gigabytes, and replaces the operator that other tests use.
pytestmark = [
    pytest.mark.alone,
    pytest.mark.long,
    pytest.mark.timeout(5400),
    pytest.mark.skipif(not on_kind(), reason="the nodes are containers of this machine's Docker"),
]
_FORWARD = (
    "echo $$ >/run/forward-{port}.pid; exec socat TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr TCP:{host}:{port}"
)


@pytest.fixture(scope="module")
def registry(cluster: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry with the name that this machine and all nodes know it by."""
    port = free_port()
    command = [program("registry"), "--address", f"0.0.0.0:{port}", "--folder", str(tmp_path_factory.mktemp("blobs"))]
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdout=subprocess.PIPE)
    try:
        with forwarded(cluster("get", "nodes", "-o", "name").split(), port):
            yield f"127.0.0.1:{port}/team"
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def forwarded(nodes: list[str], port: int) -> Iterator[None]:
    names = [name.removeprefix("node/") for name in nodes]
    for name in names:
        host = docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}", name)
        docker("exec", "--detach", name, "sh", "-c", _FORWARD.format(port=port, host=host))
    yield
    for name in names:
        docker("exec", name, "sh", "-c", f"kill $(cat /run/forward-{port}.pid)")


@pytest.fixture
def installed(operator: Kubectl, cluster: Kubectl, registry: str) -> Iterator[str]:
    """The operator from the registry; afterwards the one that other tests use."""
    env = {**os.environ, "KUBECONFIG": str(KUBECONFIG), "REGISTRY": registry}
    done = subprocess.run(
        [str(ROOT / "install" / "install.sh"), "install"],
        env=env, capture_output=True, text=True, timeout=4000, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    yield done.stdout
    cluster("delete", "ptj", "digits", "--ignore-not-found")
    install(cluster)


def test_operator_and_job_come_from_the_registry(cluster: Kubectl, installed: str) -> None:
    record = json.loads((ROOT / "out/release/images.json").read_text())
    pods = cluster.get("pods", "-n", SYSTEM, "-l", f"app.kubernetes.io/name={RELEASE}")["items"]
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {record["images"]["operator"]["reference"]}
    (apply,) = [line.strip() for line in installed.splitlines() if line.startswith("  kubectl apply -f")]
    cluster("apply", "-f", str(ROOT / Path(apply.rpartition(" ")[2])))
    assert cluster.finish("digits", 1200)["Succeeded"] == "True"
    assert re.search(r"accuracy=0\.9\d", cluster("logs", "digits-master-0"))
