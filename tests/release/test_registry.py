"""From a real registry: images, chart and manifests are pushed there, and installed from there on a real API server.

Docker alone is a fake: it pushes small images that are made up. The commands are those of docs/installing.md.
"""

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob_agent import __version__
from tests.apiserver.cluster import BIN, ControlPlane
from tests.chart.conftest import KUBE_VERSION, output, tool
from tests.chart.support import CRD, NAME, NEEDS_NODES, SPACE, served, until
from tests.readme import clone
from tests.release.support import ROOT, Checkout
from tests.shell.following import follow, run_by
from tests.shell.register import REGISTRY

pytestmark = [pytest.mark.helm, pytest.mark.apiserver, pytest.mark.long]

PAGE = ROOT / "docs/installing.md"
KINDS = ("application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json")


@dataclass(frozen=True)
class User:
    """A clone of this repository, a registry, a cluster, and a shell that has both."""

    checkout: Path
    registry: str
    plane: ControlPlane
    programs: Checkout

    def follow(self, heading: str, block: int, **env: str) -> str:
        """Run a shell block of the page as it is written; returns what it prints."""
        section = re.split(r"^##+ ", PAGE.read_text().partition(f"## {heading}\n")[2], flags=re.MULTILINE)[0]
        blocks = re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
        script = "\n".join(line for line in blocks[block].splitlines() if NEEDS_NODES not in line)
        given = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))},
            "PATH": os.pathsep.join([*map(str, self.folders), os.environ["PATH"]]),
            **self.variables,
            **env,
        }
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.checkout, env=given, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def folders(self) -> list[Path]:
        """Where the programs are."""
        return [self.programs.programs, Path(tool("helm")).parent, BIN]

    @property
    def variables(self) -> dict[str, str]:
        return {
            "KUBECONFIG": str(self.plane.kubeconfig),
            "REGISTRY": self.registry,
            "PLAIN_HTTP": "1",  # this registry has no TLS
            "FAKE_DOCKER": str(self.programs.docker),
            "HELM_CONFIG_HOME": str(self.programs.docker / "helm"),
        }

    @property
    def record(self) -> Any:
        return json.loads((self.checkout / "out/release/images.json").read_text())


@pytest.fixture(scope="module")
def user(registry: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user with a pushed release."""
    folder = tmp_path_factory.mktemp("user")
    programs = Checkout(folder)
    programs.fake_docker()
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane:
        found = User(clone(folder / "clone"), f"{registry}/team", plane, programs)
        found.follow("From a registry", 0)
        yield found


def digest(reference: str) -> str:
    """The digest of what a registry has under a name with a tag or a digest."""
    host, _, path = reference.partition("/")
    name, mark, version = path.partition("@") if "@" in path else path.rpartition(":")
    assert mark
    request = urllib.request.Request(f"http://{host}/v2/{name}/manifests/{version}", method="HEAD")
    request.add_header("Accept", ", ".join(KINDS))
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.headers["Docker-Content-Digest"])


def test_the_registry_has_every_image_by_tag_by_digest_and_for_each_platform(user: User) -> None:
    for image in user.record["images"].values():
        assert digest(f"{image['name']}:{__version__}") == digest(image["reference"]) == image["digest"]
        for platform in image["platforms"].values():
            assert digest(f"{image['name']}@{platform}") == platform


def test_the_registry_has_the_chart(user: User) -> None:
    chart = user.record["chart"]
    assert chart["name"] == f"oci://{user.registry}/charts/{NAME}"
    assert digest(f"{user.registry}/charts/{NAME}:{__version__}") == chart["digest"]


def test_the_pulled_chart_has_the_image_by_digest_and_passes_lint(user: User, tmp_path: Path) -> None:
    chart = user.record["chart"]["name"]
    output(tool("helm"), "pull", chart, "--version", __version__, "--destination", str(tmp_path))
    archive = str(tmp_path / f"{NAME}-{__version__}.tgz")
    assert "0 chart(s) failed" in output(tool("helm"), "lint", "--strict", archive)
    made = output(tool("helm"), "template", "x", archive, "--kube-version", KUBE_VERSION)
    assert f"image: {user.record['images']['operator']['reference']}\n" in made


def image_of(user: User, *where: str) -> str:
    template = user.plane.get(*where)["spec"]["template"]["spec"]
    return str(template["containers"][0]["image"])


def test_the_page_installs_from_the_registry_and_runs_an_example_from_there(user: User) -> None:
    user.follow("From a registry", 1)
    until(lambda: served(user.plane))
    assert image_of(user, "deployment", NAME, "-n", SPACE) == user.record["images"]["operator"]["reference"]
    user.follow("From a registry", 2)
    job = user.plane.get("ptj", "digits")
    containers = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert digest(containers[0]["image"]) == user.record["images"]["examples"]["digest"]
    uninstall(user)


def uninstall(user: User) -> None:
    output(
        tool("helm"), "uninstall", NAME, "-n", SPACE, "--kubeconfig", str(user.plane.kubeconfig), "--ignore-not-found"
    )
    assert user.plane.kubectl("delete", "crd", CRD, "--ignore-not-found").returncode == 0


def test_the_page_installs_without_helm(user: User) -> None:
    user.follow("From a registry", 3)
    assert image_of(user, "deployment", NAME, "-n", SPACE) == user.record["images"]["operator"]["reference"]
    install = user.checkout / "out/release/install.yaml"
    kinds = [manifest["kind"] for manifest in yaml.safe_load_all(install.read_text()) if manifest]
    assert {"CustomResourceDefinition", "Deployment", "Namespace"} <= {*kinds}
    done = user.plane.kubectl("diff", "-f", str(install))
    assert done.returncode == 0, done.stdout
    assert user.plane.kubectl("delete", "-f", str(install)).returncode == 0


def test_the_page_installs_where_nothing_outside_can_be_reached(user: User, registry: str) -> None:
    inside = f"{registry}/inside"
    user.follow("Without access to the registry", 0)
    user.follow("Without access to the registry", 1, INSIDE=inside)
    assert image_of(user, "deployment", NAME, "-n", SPACE) == f"{inside}/pytorchjob-operator:{__version__}"
    assert digest(f"{inside}/pytorchjob-operator:{__version__}")
    uninstall(user)


def test_the_page_of_moving_pushes_the_images_to_the_registry_of_the_reader(
    user: User, registry: str, tmp_path: Path
) -> None:
    name = "test_the_page_of_moving_pushes_the_images_to_the_registry_of_the_reader"
    [key] = run_by(f"{REGISTRY}::{name}")
    mine = f"{registry}/moving"
    follow(key, clone(tmp_path / "clone"), user.folders, **{**user.variables, "REGISTRY": mine})
    for image in ("operator", "agent", "examples"):
        assert digest(f"{mine}/pytorchjob-{image}:{__version__}")


def test_a_chart_without_images_is_refused(checkout: Checkout) -> None:
    done = checkout.run("chart")
    assert (done.status, "run `make push REGISTRY=...` first" in done.error) == (1, True), done.error


def test_a_registry_that_does_not_answer_is_named_with_the_remedy(with_docker: Checkout) -> None:
    with_docker.link("helm", Path(tool("helm")))
    assert with_docker.run("push", REGISTRY="r.test/team").status == 0
    done = with_docker.run("chart", CHARTS="127.0.0.1:1/charts")
    assert (done.status, "helm registry login 127.0.0.1:1" in done.error) == (1, True), done.error
