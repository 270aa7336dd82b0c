"""What is installed from the pushed images: values for the chart, manifests and examples that name them by digest."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from release.common import OUT, StepError, have, run, show, write

EXAMPLE_IMAGE = "pytorchjob/examples:dev"
VALUES = OUT / "values.yaml"
MANIFESTS = OUT / "manifests"
COMPONENT = Path("manifests/image/kustomization.yaml")
INSTALL = OUT / "install.yaml"
EXAMPLES = OUT / "examples"


def values(record: Mapping[str, Any]) -> str:
    """Return the chart's values for the pushed image."""
    image = record["images"]["operator"]
    lines = ("image:", f"  repository: {image['name']}", f'  tag: "{record["tag"]}"', f"  digest: {image['digest']}")
    return "\n".join(("# The pushed images, for `helm install --values`.", *lines, ""))


def named_component(text: str, name: str, digest: str) -> str:
    """Return the manifests' image component with the image in it, without the patch that refuses until then."""
    kept, refusal, _ = text[text.index("apiVersion:") :].partition("patches:\n")
    lines = ["# The pushed image, by digest, for the other folders."]
    for line in kept.splitlines():
        key = line.strip().partition(":")[0]
        indent = line[: len(line) - len(line.lstrip())]
        lines.append({"newName": f"{indent}newName: {name}", "newTag": f"{indent}digest: {digest}"}.get(key, line))
    named = "\n".join(lines) + "\n"
    if not refusal or digest not in named or f"newName: {name}\n" not in named:
        raise StepError(f"{COMPONENT} has no image to name", "restore the file: git checkout -- manifests")
    return named


def named_example(text: str, reference: str) -> str:
    """Return an example with the pushed image."""
    return text.replace(EXAMPLE_IMAGE, reference)


def write_all(record: Mapping[str, Any]) -> None:
    """Write everything below out/release; what an earlier push wrote there is replaced."""
    operator = record["images"]["operator"]
    write(VALUES, values(record))
    for folder in ("crds", "manifests"):
        shutil.rmtree(OUT / folder, ignore_errors=True)
        shutil.copytree(folder, OUT / folder)
    write(OUT / COMPONENT, named_component(COMPONENT.read_text(), operator["name"], operator["digest"]))
    shutil.rmtree(EXAMPLES, ignore_errors=True)
    for path in sorted(Path("examples").rglob("*.yaml")):
        write(OUT / path, named_example(path.read_text(), record["images"]["examples"]["reference"]))
    if have("kubectl"):
        write(INSTALL, run("kubectl", "kustomize", str(MANIFESTS / "base")))
    else:
        INSTALL.unlink(missing_ok=True)
        show(f"push: {INSTALL} is not written, because kubectl is missing; {MANIFESTS}/base has the same objects")
