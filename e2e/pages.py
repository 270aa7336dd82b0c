"""What tests of the pages share: images of the reader's, and a cluster without the operator."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.conftest import CACHE, KUBECONFIG, RELEASE, ROOT, SYSTEM, install
from e2e.faults import docker
from e2e.kubectl import Kubectl
from pytorchjob_agent import __version__
from tests.shell.following import follow_text

REGISTRY = "registry.test/team"
IMAGE = f"{REGISTRY}/{RELEASE}:{__version__}"
"""The operator's image as the pages name it, for the reader's registry."""
DEFINITION = "pytorchjobs.kubeflow.org"


def nodes(cluster: Kubectl) -> list[str]:
    """The containers that are nodes."""
    return [node.removeprefix("node/") for node in cluster("get", "nodes", "-o", "name").split()]


_PIP = "pip install --no-cache-dir --target /opt/pytorchjob"
LIBRARIES = {
    "hugging-face": ("my/transformers:1", f"{_PIP} transformers psutil && {_PIP} --no-deps accelerate"),
    "lightning": (
        "my/lightning:1",
        f"{_PIP} fsspec tqdm packaging pyyaml && {_PIP} --no-deps lightning "
        "pytorch-lightning lightning-utilities torchmetrics",
    ),
}
"""The image of each example, and how to install its libraries beside the torch that is there."""
_WITH_LIBRARIES = """
FROM pytorchjob/examples:dev AS examples
RUN {install}
FROM scratch AS code
COPY --from=examples /workspace /workspace
COPY --from=examples /opt/pytorchjob /opt/pytorchjob
FROM pytorchjob/examples-base:dev
COPY --from=code / /
WORKDIR /workspace
"""


def bring(cluster: Kubectl, image: str, dockerfile: str, folder: Path) -> None:
    """Build a small image in a folder, and bring it into all nodes."""
    (folder / "Dockerfile").write_text(dockerfile)
    build(folder, image)
    for node in nodes(cluster):
        run(f"docker save {image} | docker exec -i {node} ctr -n k8s.io images import -")


def bring_with_libraries(cluster: Kubectl, image: str, install: str, folder: Path) -> None:
    """Add to the examples' image what a command installs into /opt/pytorchjob, and bring it into all nodes.

    The nodes have its base already, gigabytes of torch: only the new layer travels.
    """
    name = image.partition("/")[2].partition(":")[0]
    (folder / "Dockerfile").write_text(_WITH_LIBRARIES.format(install=install))
    build(folder, f"pytorchjob/{name}-code:dev", "--target", "code")
    build(folder, f"pytorchjob/{name}:dev")
    run(f"{ROOT}/e2e/cluster/load_images.py --images {name} {' '.join(nodes(cluster))}")
    name_in_nodes(cluster, f"docker.io/pytorchjob/{name}:dev", f"docker.io/{image}")


@contextmanager
def with_libraries(cluster: Kubectl, example: str, folder: Path) -> Iterator[None]:
    """The image that the page of an example asks a reader to make, as long as the context lasts."""
    name, install = LIBRARIES[example]
    bring_with_libraries(cluster, name, install, folder)
    try:
        yield
    finally:
        forget(cluster, name)


def build(folder: Path, image: str, *options: str) -> None:
    run(f"docker build --network host --tag {image} {' '.join(options)} {folder}")


def run(script: str) -> None:
    """Run a line of bash; what it printed is in the error."""
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def name_in_nodes(cluster: Kubectl, image: str, name: str) -> None:
    """Give an image of the nodes another name too."""
    for node in nodes(cluster):
        docker("exec", node, "ctr", "-n", "k8s.io", "images", "tag", "--force", image, name)


def forget(cluster: Kubectl, image: str) -> None:
    """Remove an image that was brought into the nodes."""
    for node in nodes(cluster):
        names = docker("exec", node, "ctr", "-n", "k8s.io", "images", "ls", "-q").splitlines()
        for name in (name for name in names if name.endswith(image)):
            docker("exec", node, "ctr", "-n", "k8s.io", "images", "rm", name)


@contextmanager
def without_operator(cluster: Kubectl) -> Iterator[None]:
    """No operator and no definition, while all nodes have the operator's image as if from the reader's registry."""
    name_in_nodes(cluster, "docker.io/pytorchjob/operator:dev", IMAGE)
    remove(cluster)
    try:
        yield
    finally:
        remove(cluster)
        install(cluster)
        forget(cluster, IMAGE)


def remove(cluster: Kubectl) -> None:
    """Remove the operator, its namespace and the definition."""
    uninstall = f"helm uninstall {RELEASE} -n {SYSTEM} --ignore-not-found --wait"
    follow_text(uninstall, ROOT, [CACHE], KUBECONFIG=str(KUBECONFIG))
    cluster("delete", "crd", DEFINITION, "--ignore-not-found")
    cluster("delete", "namespace", SYSTEM, "--ignore-not-found")
    for kind in ("clusterrole", "clusterrolebinding", "validatingadmissionpolicy", "validatingadmissionpolicybinding"):
        cluster("delete", kind, "-l", f"app.kubernetes.io/name={RELEASE}", "--ignore-not-found")
