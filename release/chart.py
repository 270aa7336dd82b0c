"""Package the chart with the pushed image in it, by digest, and push it as an OCI artifact.

It goes to CHARTS, or else to `charts` below the registry of the images: a chart and an image cannot share a repository.
PLAIN_HTTP is for a registry without TLS. REPOSITORY is the address of the sources; a workflow of GitHub knows it.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from release.common import CHART, NAME, OUT, RECORD, StepError, main, read_record, run, show, write, write_json
from release.sign import signer

_DIGEST = re.compile(r"^Digest: (sha256:[0-9a-f]{64})$", re.MULTILINE)


def with_image(values: str, image: Mapping[str, str], tag: str) -> str:
    """Return values.yaml with the image as its default; comments stay."""
    before, found, after = values.partition("\nimage:\n")
    block, blank, rest = after.partition("\n\n")
    chosen = {"repository": image["name"], "tag": f'"{tag}"', "digest": image["digest"]}
    for key, value in chosen.items():
        block, count = re.subn(rf'^(  {key}: )""$', rf"\g<1>{value}", block, flags=re.MULTILINE)
        if not found or count != 1:
            raise StepError(f"{CHART}/values.yaml has no empty image.{key}", "give it the default of an empty text")
    return before + found + block + blank + rest


def repository(env: Mapping[str, str]) -> str:
    """Return the address of the sources; empty if it is not known."""
    if address := env.get("REPOSITORY"):
        return address.rstrip("/")
    server, name = env.get("GITHUB_SERVER_URL"), env.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else ""


def with_home(chart: str, address: str) -> str:
    """Return Chart.yaml with the address of the sources; comments stay."""
    return f"{chart.rstrip()}\nhome: {address}\nsources: [{address}]\n" if address else chart


def package(record: Mapping[str, Any], address: str = "") -> Path:
    """Write the chart's archive; return its path. `address`: of the sources."""
    copy = OUT / "chart" / NAME
    shutil.rmtree(copy.parent, ignore_errors=True)
    shutil.copytree(CHART, copy)
    values = copy / "values.yaml"
    write(values, with_image(values.read_text(), record["images"]["operator"], record["tag"]))
    about = copy / "Chart.yaml"
    write(about, with_home(about.read_text(), address))
    run("helm", "package", str(copy), "--destination", str(OUT))
    return OUT / f"{NAME}-{record['version']}.tgz"


def push(archive: Path, charts: str, *options: str) -> str:
    """Push the archive, with more options of Helm; return its digest."""
    account = f"if the registry asks for an account, run `helm registry login {charts.partition('/')[0]}`"
    # Helm prints the digest to the error stream.
    printed = run(
        "bash", "-c", 'helm push "$@" 2>&1', "bash", str(archive), f"oci://{charts}", *options, remedy=account
    )
    found = _DIGEST.search(printed)
    if found is None:
        raise StepError("Helm reports no digest of the chart", "update Helm to 3.8 or newer")
    return found[1]


def step(_arguments: Sequence[str], env: Mapping[str, str]) -> None:
    """Package and push the chart for the images that were pushed last."""
    record, by = read_record(), signer(env)
    charts = env.get("CHARTS") or f"{record['registry']}/charts"
    archive = package(record, repository(env))
    digest = push(archive, charts, *(["--plain-http"] if env.get("PLAIN_HTTP") else []))
    reference = f"{charts}/{NAME}@{digest}"
    by.sign(reference)
    chart = {"name": f"oci://{charts}/{NAME}", "digest": digest, "reference": reference, "archive": str(archive)}
    write_json(RECORD, {**record, "chart": chart})
    show(f"chart: {reference}\nchart: install it with")
    where = "--namespace pytorchjob-system --create-namespace"
    show(f"  helm install {NAME} {chart['name']} --version {record['version']} {where}")


if __name__ == "__main__":
    main(step)
