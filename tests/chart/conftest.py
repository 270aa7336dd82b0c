"""Renders the chart with the real helm and the manifests with the real kubectl."""

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/pytorchjob-operator"
CACHE = Path(
    os.environ.get("PYTORCHJOB_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytorchjob-operator"
)
# helm's own default is older than what the chart asks for.
KUBE_VERSION = "1.34.0"
# The chart and the manifests refuse to render without an image, because none is published.
REPOSITORY = "pytorchjob/operator"
NAMED = ("--set", f"image.repository={REPOSITORY}")

Objects = dict[tuple[str, str], dict[str, Any]]
Template = Callable[..., Objects]


def tool(name: str) -> str:
    path = shutil.which(name, path=f"{CACHE / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    if path is None:
        pytest.fail(f"{name} is missing: run `make binaries` (needs Go), or leave these tests out with -m 'not helm'")
    return path


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def objects(text: str) -> Objects:
    """By kind and name; a name that is used in several namespaces is followed by its namespace."""
    found: Objects = {}
    for one in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if one:
            key = (one["kind"], one["metadata"]["name"])
            found[key if key not in found else (key[0], f"{key[1]}/{one['metadata']['namespace']}")] = one
    return found


@pytest.fixture(scope="session")
def helm() -> Callable[..., str]:
    """Run helm with these arguments; RuntimeError carries what it said."""
    path = tool("helm")
    return lambda *arguments: output(path, *arguments)


@pytest.fixture(scope="session")
def template(helm: Callable[..., str]) -> Template:
    """Render the chart with these `key=value` settings; without its CRD unless asked, as that is large.

    Helm renders the same settings once. Each test has objects of its own, so it may change them.
    """

    @cache
    def text(*settings: str) -> str:
        where = ("pytorchjob-operator", str(CHART), "--namespace", "pytorchjob-system", "--kube-version", KUBE_VERSION)
        return helm("template", *where, *flags(*settings))

    def render(*settings: str, crd: bool = False) -> Objects:
        return objects(text(f"crds.install={str(crd).lower()}", f"image.repository={REPOSITORY}", *settings))

    return render


def flags(*settings: str) -> list[str]:
    """Helm's flags for `key=value` settings, whose lists and objects are JSON."""
    return [word for text in settings for word in ("--set-json" if "=[" in text or "={" in text else "--set", text)]


@pytest.fixture(scope="session")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of manifests/ whose image is named, as a user names it."""
    return named_manifests(tmp_path_factory.mktemp("named"), REPOSITORY)


def named_manifests(folder: Path, repository: str) -> Path:
    """Copy manifests/ into a folder, and name the operator's image there."""
    for name in ("crds", "manifests"):
        shutil.copytree(ROOT / name, folder / name)
    component = folder / "manifests/image/kustomization.yaml"
    named, _, _ = component.read_text().partition("patches:\n")
    component.write_text(named.replace("registry.example.com/pytorchjob-operator", repository))
    return folder / "manifests"


@pytest.fixture(scope="session")
def kustomize(manifests: Path) -> Callable[[str], Objects]:
    """Render one folder below manifests/."""
    path = tool("kubectl")
    return lambda folder: objects(output(path, "kustomize", str(manifests / folder)))
